// What the widgets' controls have in common: labelled fields with a place for what is wrong, and a state that is kept.

const each = (items, html) => Array.from(items, html).join("");

// a number input where `range` is given ({ min, max, step }), else a choice among `choices` ({ value: text })
function labelledField(id, name, label, { range, choices }) {
  const control = `id="${id}-${name}" data-is="${name}" aria-describedby="${id}-${name}-problem"`;
  const options = each(Object.entries(choices ?? {}), ([value, text]) => `<option value="${value}">${text}</option>`);
  const limits = each(Object.entries(range ?? {}), ([key, value]) => ` ${key}="${value}"`);
  return `<div class="hwl-field hwl-field-${name}"><label for="${id}-${name}">${label}</label>
    ${choices ? `<select ${control}>${options}</select>` : `<input type="number" ${control}${limits}>`}
    <p class="hwl-problem" role="alert" id="${id}-${name}-problem" data-is="${name} problem"></p></div>`;
}

function newId() {
  return `hwl-${Math.random().toString(36).slice(2, 10)}`;
}

// Draws with `draw(state)` whatever is a good state, from the reader (`put`) or from elsewhere. `problemOf(state)` says
// at which field a state is wrong and why, or null: that is said beside the field and the last good state stays.
function keepState({ model, el, at, fields, start, problemOf, draw }) {
  let state = start;
  let waiting = {}; // by field, what was typed and could not be taken alone

  function say(name, text) {
    at[`${name} problem`].textContent = text;
    at[name].setAttribute("aria-invalid", text !== "");
  }

  function receive() {
    const problem = problemOf(model.get("state"));
    if (!problem) state = model.get("state");
    waiting = {};
    for (const name of fields) say(name, "");
    draw(state);
    if (!problem) return;
    model.set("state", state);
    model.save_changes();
    say(problem.at, problem.text);
  }

  // what the reader typed stays in the field where it is wrong, and is taken once it goes with what else was typed
  function put(name, change) {
    delete waiting[name];
    const alone = { ...state, ...change };
    const together = Object.assign({ ...state }, ...Object.values(waiting), change);
    const apart = problemOf(together);
    const problem = apart && problemOf(alone);
    if (problem) {
      if (at[name].tagName === "INPUT") waiting[name] = change;
      return say(name, apart.at === name ? apart.text : problem.text);
    }
    model.set("state", apart ? alone : together);
    model.save_changes();
    receive();
  }

  el.classList.add("hwl-explorer");
  el.dataset.lmSuppressShortcuts = "true"; // JupyterLab's own keys stay out
  model.on("change:state", receive);
  receive();
  return { put, now: () => state, stop: () => model.off("change:state", receive) };
}
