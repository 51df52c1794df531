// The number-format explorer: `render` draws it, in JupyterLab on anywidget's model, on a page on that of element.js.
// Its state is one entry of the model: the number as text, the format, what overflow gives, and the bits.

const START = { number: "0.1", format: "bf16", overflow: "nonsaturating", bits: "0011110111001101" };
const OVERFLOWS = { nonsaturating: "infinity or NaN (nonsaturating)", saturate: "the largest (saturate)" };
const COLUMNS = ["format", "stored", "relative error", "spacing", "bits"];
const FACTS = ["next smaller", "next larger", "spacing", "error", "largest", "beyond it"];
const TEXT_BOX = 'type="text" size="22" spellcheck="false" autocomplete="off" autocapitalize="off"';

const toNumber = (text) => ({ nan: NaN, inf: Infinity, "-inf": -Infinity })[text] ?? Number(text);
const toBits = (code, f) => code.toString(2).padStart(f.bits, "0");
const each = (items, html) => Array.from(items, html).join("");

function field(id, name, label, choices) {
  const control = `id="${id}-${name}" data-is="${name}" aria-describedby="${id}-${name}-problem"`;
  const options = each(Object.entries(choices ?? {}), ([value, text]) => `<option value="${value}">${text}</option>`);
  return `<div class="hwl-field hwl-field-${name}"><label for="${id}-${name}">${label}</label>
    ${choices ? `<select ${control}>${options}</select>` : `<input ${control} ${TEXT_BOX}>`}
    <p class="hwl-problem" role="alert" id="${id}-${name}-problem" data-is="${name} problem"></p></div>`;
}

function skeleton(id) {
  const names = Object.keys(FORMATS);
  const cells = "<td></td>".repeat(COLUMNS.length - 1);
  const holder = (name) => (name.startsWith("next") ? '<button type="button"></button>' : "");
  const fact = (name) => `<div><dt>${name}</dt><dd data-is="${name}">${holder(name)}</dd></div>`;
  return `<div class="hwl-fields">${field(id, "number", "Number, read as fp64")}
    ${field(id, "format", "Format", Object.fromEntries(names.map((name) => [name, name])))}
    ${field(id, "overflow", "Too large becomes", OVERFLOWS)}</div>
    <div class="hwl-bits" role="toolbar" aria-label="Bits, the highest first" data-is="toolbar"></div>
    ${field(id, "bits", "The same bits as text")}
    <p class="hwl-status" role="status" data-is="status"></p>
    <dl class="hwl-facts">${each(FACTS, fact)}</dl>
    <div class="hwl-scroll" role="group" tabindex="0" aria-label="The number in every format">
    <table class="hwl-table"><caption data-is="caption"></caption>
    <thead><tr>${each(COLUMNS, (name) => `<th scope="col">${name}</th>`)}</tr></thead><tbody>
    ${each(names, (name) => `<tr data-is="row ${name}"><th scope="row"></th>${cells}</tr>`)}</tbody></table></div>`;
}

function bitGroup(name, size) {
  const label = (index) => `${name} bit ${size - 1 - index}`;
  const bit = (_, index) => `<button type="button" tabindex="-1" data-label="${label(index)}"></button>`;
  return `<div class="hwl-bit-group hwl-${name}" role="group" aria-label="${name}"><span>${name}</span>
    <div class="hwl-bit-row">${each({ length: size }, bit)}</div>
    <span class="hwl-says" data-says="${name}"></span></div>`;
}

// Which field of a state that came from outside cannot be used, and why; null where all is well.
function problemOf(state) {
  const { number, format, overflow, bits } = state ?? {};
  if (!Object.hasOwn(FORMATS, format)) {
    return { at: "format", text: `Unknown format ${format}; there are ${Object.keys(FORMATS).join(", ")}.` };
  }
  if (!Object.hasOwn(OVERFLOWS, overflow)) return { at: "overflow", text: `Unknown overflow ${overflow}.` };
  const isNumber = number === "nan" || (number && !Number.isNaN(toNumber(number)));
  if (!isNumber) return { at: "number", text: `“${number}” is no number.` };
  const { problem } = readBits(String(bits), FORMATS[format]);
  return problem ? { at: "bits", text: problem } : null;
}

function render({ model, el }) {
  let state = START;
  let buttons = [];
  const now = () => ({ f: FORMATS[state.format], code: BigInt(`0b${state.bits}`), value: toNumber(state.number) });
  el.innerHTML = skeleton(`hwl-${Math.random().toString(36).slice(2, 10)}`);
  const at = Object.fromEntries([...el.querySelectorAll("[data-is]")].map((part) => [part.dataset.is, part]));

  function say(name, text, ...more) {
    at[`${name} problem`].replaceChildren(text, ...more);
    at[name].setAttribute("aria-invalid", text !== "");
  }

  function put(change) {
    model.set("state", { ...state, ...change });
    model.save_changes();
    receive();
  }

  function putCode(code) {
    const { f } = now();
    put({ number: writeNumber(decode(code, f)), bits: toBits(code, f) });
  }

  // the same or another number, in a format, with an overflow; what cannot be stored is said, and nothing changes
  function store(name, change) {
    const wanted = { ...state, ...change };
    const f = FORMATS[wanted.format];
    const code = encode(toNumber(wanted.number), f, wanted.overflow);
    if (code !== null) return put({ ...change, bits: toBits(code, f) });
    receive();
    say(name, `${f.name} has no code for NaN.`);
  }

  function read(name, reader, accept) {
    const found = reader(at[name].value, now().f);
    if (!found.problem) return accept(found);
    if (!("offer" in found)) return say(name, found.problem);
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Show it" });
    button.onclick = () => store(name, { number: writeNumber(found.offer) });
    say(name, found.problem, " ", button);
  }

  at.number.onchange = () => {
    if (at.number.value.trim() === state.number) receive();
    else read("number", readNumber, ({ value }) => store("number", { number: writeNumber(value) }));
  };
  at.bits.onchange = () => read("bits", readBits, ({ code }) => putCode(code));
  at.format.onchange = () => store("format", { format: at.format.value });
  at.overflow.onchange = () => store("overflow", { overflow: at.overflow.value });
  ["next smaller", "next larger"].forEach((name, side) => {
    at[name].firstChild.onclick = () => {
      const { f, code } = now();
      putCode(encode(neighbours(decode(code, f), f)[side], f));
    };
  });

  // a toolbar of one button for each bit: one stop of the tab key, arrows move, 0 and 1 write
  function drawToolbar(f) {
    const sizes = { sign: Number(f.has_sign), exponent: f.exponent_bits, fraction: f.fraction_bits };
    const groups = Object.entries(f.codebook.length ? { code: f.bits } : sizes).filter(([, size]) => size);
    at.toolbar.dataset.format = f.name;
    at.toolbar.innerHTML = each(groups, ([name, size]) => bitGroup(name, size));
    buttons = [...at.toolbar.querySelectorAll("button")];
    buttons[0].tabIndex = 0;
    buttons.forEach((button, index) => {
      button.onclick = () => putCode(now().code ^ bigPower(f.bits - 1 - index));
      button.onfocus = () => buttons.forEach((other) => { other.tabIndex = other === button ? 0 : -1; });
    });
  }

  at.toolbar.onkeydown = (event) => {
    const index = buttons.indexOf(event.target);
    const [right, last] = [Math.min(index + 1, buttons.length - 1), buttons.length - 1];
    const goals = { ArrowRight: right, ArrowLeft: Math.max(index - 1, 0), Home: 0, End: last, 0: right, 1: right };
    if (!(event.key in goals) || event.ctrlKey || event.metaKey || event.altKey) return;
    if ("01".includes(event.key) && event.key !== state.bits[index]) event.target.click();
    buttons[goals[event.key]].focus();
    event.preventDefault();
  };

  function drawFacts({ f, code, value }) {
    const stored = decode(code, f);
    neighbours(stored, f).forEach((next, side) => {
      const name = side ? "next larger" : "next smaller";
      const text = next === null ? "none" : writeNumber(next);
      Object.assign(at[name].firstChild, { textContent: text, ariaLabel: `${text}, ${name}`, disabled: next === null });
    });
    const beyond = (way) => `${writeNumber(decode(encode(Infinity, f, way), f))} (${way})`;
    const error = Number.isFinite(stored - value) ? stored - value : null;
    at.spacing.textContent = writeNumber(spacing(stored, f));
    at.error.textContent = `${error > 0 ? "+" : ""}${writeShort(error)}`;
    at.largest.textContent = writeNumber(f.max);
    at["beyond it"].textContent = Object.keys(OVERFLOWS).map(beyond).join(", ");
    at.status.textContent = `${f.name} stores ${state.number} as ${writeNumber(stored)}.`;
  }

  function draw() {
    const { f, code, value } = now();
    if (at.toolbar.dataset.format !== f.name) drawToolbar(f);
    buttons.forEach((button, index) => {
      const bit = state.bits[index];
      const ariaLabel = `${bit}, ${button.dataset.label}`;
      Object.assign(button, { textContent: bit, ariaPressed: bit === "1", ariaLabel });
    });
    const said = explain(code, f);
    at.toolbar.querySelectorAll("[data-says]").forEach((part) => { part.textContent = said[part.dataset.says]; });
    for (const name of ["number", "format", "overflow"]) at[name].value = state[name];
    Object.assign(at.bits, { value: writeBits(code, f), size: f.bits + 4 });
    drawFacts({ f, code, value });
    at.caption.textContent = `${state.number} in every format · computed`;
    for (const other of Object.values(FORMATS)) {
      const row = at[`row ${other.name}`];
      row.ariaCurrent = other === f;
      tableRow(value, other, state.overflow).forEach((text, column) => { row.children[column].textContent = text; });
    }
  }

  function receive() {
    const problem = problemOf(model.get("state"));
    if (problem) put(state);
    else state = model.get("state");
    for (const name of ["number", "format", "overflow", "bits"]) say(name, "");
    draw();
    if (problem) say(problem.at, problem.text);
  }

  el.classList.add("hwl-explorer");
  el.dataset.lmSuppressShortcuts = "true"; // JupyterLab's own keys stay out
  model.on("change:state", receive);
  receive();
  return () => model.off("change:state", receive);
}
