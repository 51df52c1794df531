# Needs only Python 3.11 to 3.13 and make. README.md has each target's plain line for machines without make.
#   make book    install into .venv, run every lesson, build the site into _build/html
#   make test    the same, then all checks and tests
#   make lab     JupyterLab in notebooks/
#   make gpu     run the lessons on a GPU with the Python named by PYTHON=, write one file into book/evidence
#   make bench   the benchmarks
#   make clean   remove what a build wrote; .venv stays
# Variables: PYTHON= the Python to use, LESSONS= some lessons only (gpu), TESTS= some tests only (test)

SHELL := /bin/sh
PYTHON ?=
LESSONS ?=
TESTS ?=
HERE := .venv/bin/python
READY := .venv/ready
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))

.PHONY: book test check lab gpu bench clean
.DELETE_ON_ERROR:

book: $(READY)
	@$(HERE) -m hwlessons book

test: check
	@$(HERE) -m pytest $(TESTS)

check: book
	@$(HERE) -m ruff check .
	@$(HERE) -m ruff format --check .
	@$(HERE) -m mypy

lab: $(READY)
	@cd notebooks && ../$(HERE) -m jupyterlab

gpu:
	@PYTHONPATH="$(CURDIR)/src" HWLESSONS_DEVICE="$${HWLESSONS_DEVICE:-cuda}" "$(or $(PYTHON),python3)" -m hwlessons gpu $(LESSONS)

bench: $(READY)
	@for file in benchmarks/*.py; do \
	  [ -e "$$file" ] || { echo "there are no benchmarks"; exit 0; }; \
	  case "$$file" in */_*) continue;; esac; \
	  $(HERE) "$$file" || exit 1; \
	done

clean:
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# The environment: made once, again only where what it must hold has changed.
$(READY): requirements.txt requirements-torch.txt requirements-lessons.txt pyproject.toml
	@found=""; for python in "$(PYTHON)" python3 python3.13 python3.12 python3.11 python; do \
	  if [ -n "$$python" ] && "$$python" -c '$(SUPPORTED)' 2>/dev/null; then found="$$python"; break; fi; \
	  if [ -n "$(PYTHON)" ]; then break; fi; \
	done; \
	if [ -z "$$found" ]; then echo "the book needs Python 3.11, 3.12 or 3.13; name one: make book PYTHON=/path/to/python" >&2; exit 1; fi; \
	echo "installing into .venv with $$found (once) …"; \
	"$$found" -m venv .venv
	@$(HERE) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@$(HERE) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)
