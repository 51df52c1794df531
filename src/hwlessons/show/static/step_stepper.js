// The stepper through an optimizer step: `render` draws it, on anywidget's model or on that of element.js.

const START = { accumulation_steps: 1, plan: "every block", moment: 0 };
const FIELDS = ["accumulation_steps", "plan", "moment"];
const MOVES = { "One back": -1, "One on": 1, "Layer back": -1, "Layer on": 1, "To the peak": 0 };

function skeleton(id) {
  const steps = Object.fromEntries(STEP_ACCUMULATION.map((count) => [count, `${count} × ${STEP_BATCH / count} sequences`]));
  const category = (name) => `<div><dt>${name}</dt><dd><span data-is="bytes ${name}"></span>
    <span class="hwl-bar" data-is="bar ${name}"></span></dd></div>`;
  return `<div class="hwl-fields">${labelledField(id, "accumulation_steps", "Accumulation steps", { choices: steps })}
    ${labelledField(id, "plan", "What is recomputed", { choices: STEP_PLANS })}</div>
    <p class="hwl-note" data-is="peak says"></p>
    <svg class="hwl-curve" role="img" preserveAspectRatio="none" data-is="curve"></svg>
    <div class="hwl-field hwl-moment"><label for="${id}-moment">Moment of the step (arrow keys move)</label>
    <input type="range" min="0" step="1" id="${id}-moment" data-is="moment" aria-describedby="${id}-moment-problem">
    <p class="hwl-problem" role="alert" id="${id}-moment-problem" data-is="moment problem"></p></div>
    <div class="hwl-fields">${each(Object.keys(MOVES), (name) => `<button type="button" data-is="${name}">${name}</button>`)}</div>
    <p class="hwl-status" role="status" data-is="status"></p>
    <dl class="hwl-facts hwl-categories">${each(STEP_CATEGORIES, category)}</dl>
    <div class="hwl-scroll" role="group" tabindex="0" aria-label="What each layer holds"><table class="hwl-table hwl-sizes">
    <caption>${STEP_HOLDS}, at this moment · computed</caption>
    <thead><tr>${each(STEP_COLUMNS, (name) => `<th scope="col">${name}</th>`)}</tr></thead><tbody>
    ${each(STEP_LAYERS, (name) => `<tr data-is="row ${name}"><th scope="row">${name}</th>
    ${"<td></td>".repeat(STEP_COLUMNS.length - 1)}</tr>`)}</tbody></table></div>`;
}

// the whole step: a ground where it runs forward, the bytes, a broken line at the peak, a line at this moment
function curve(moments, peak, now) {
  const [height, top] = [100, moments[peak].total * 1.02];
  const y = ({ total }) => (height * (1 - total / top)).toFixed(2);
  const line = moments.map((moment, x) => `${x ? "L" : "M"}${x} ${y(moment)}H${x + 1}`).join("");
  const forward = moments.map(({ where }, x) => (where.startsWith("forward") ? `M${x} 0h1V${height}h-1z` : "")).join("");
  const mark = (name, x) => `<path class="hwl-${name}" d="M${x + 0.5} 0V${height}"/>`;
  return `<path class="hwl-forward" d="${forward}"/><path class="hwl-line" d="${line}"/>${mark("peak", peak)}${mark("now", now)}`;
}

// the next moment, forwards or backwards, at which the step is elsewhere
function otherLayer(moments, from, way) {
  let index = from;
  while (moments[index + way] && moments[index + way].where === moments[from].where) index += way;
  return Math.min(Math.max(index + way, 0), moments.length - 1);
}

function render({ model, el }) {
  el.innerHTML = skeleton(newId());
  const at = Object.fromEntries([...el.querySelectorAll("[data-is]")].map((part) => [part.dataset.is, part]));

  function draw(state) {
    const moments = momentsOf(state);
    const { peak } = stepChoice(state);
    const moment = moments[state.moment];
    const most = moments[peak].total;
    at.moment.max = moments.length - 1;
    for (const name of FIELDS) at[name].value = state[name];
    const sentence = sentenceOf(moment, state);
    at.moment.setAttribute("aria-valuetext", `${state.moment} of ${moments.length - 1}: ${sentence}`);
    at.status.textContent = `${sentence} ${writeBytes(moment.total)} are alive${state.moment === peak ? ", the peak" : ""}.`;
    at["peak says"].textContent = `The whole step: at most ${writeBytes(most)} (broken line, moment ${peak} of` +
      ` ${moments.length - 1}). Shaded: forward passes. Solid line: this moment.`;
    at.curve.setAttribute("viewBox", `0 0 ${moments.length} 100`);
    at.curve.setAttribute("aria-label", `Bytes alive over ${moments.length} moments, at most ${writeBytes(most)} at moment ${peak}`);
    at.curve.innerHTML = curve(moments, peak, state.moment);
    STEP_CATEGORIES.forEach((name, index) => {
      at[`bytes ${name}`].textContent = writeBytes(moment.categories[index]);
      at[`bar ${name}`].style.width = `${(100 * moment.categories[index]) / most}%`;
    });
    for (const [layer, ...cells] of stepRows(moment)) {
      const row = at[`row ${layer}`];
      row.ariaCurrent = new RegExp(`${layer}(?!\\d)(?=$| is|:)`).test(moment.where);
      cells.forEach((text, column) => { row.children[column + 1].textContent = text; });
    }
    at["One back"].disabled = at["Layer back"].disabled = state.moment === 0;
    at["One on"].disabled = at["Layer on"].disabled = state.moment === moments.length - 1;
    at["To the peak"].disabled = state.moment === peak;
  }

  const kept = keepState({ model, el, at, fields: FIELDS, start: START, problemOf: stepProblem, draw });
  const choose = (change) => {
    const wanted = { ...kept.now(), ...change };
    kept.put(Object.keys(change)[0], { ...change, moment: stepChoice(wanted).peak });
  };
  at.accumulation_steps.onchange = () => choose({ accumulation_steps: Number(at.accumulation_steps.value) });
  at.plan.onchange = () => choose({ plan: at.plan.value });
  at.moment.oninput = () => kept.put("moment", { moment: Number(at.moment.value) });
  for (const [name, way] of Object.entries(MOVES)) {
    at[name].onclick = () => {
      const state = kept.now();
      const goals = { One: state.moment + way, Layer: way && otherLayer(momentsOf(state), state.moment, way) };
      kept.put("moment", { moment: goals[name.split(" ")[0]] ?? stepChoice(state).peak });
    };
  }
  return kept.stop;
}
