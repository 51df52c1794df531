// The VRAM calculator: `render` draws it, in JupyterLab on anywidget's model, on a page on that of element.js.

const STEP_FIELDS = [
  "microbatch", "sequence", "num_microbatches", "precision", "attention", "recomputation", "optimizer", "implementation",
  "adapters", "rank", "zero_stage", "num_devices",
];

function skeleton(id) {
  const models = { ...Object.fromEntries(Object.keys(MODELS).map((name) => [name, name])), custom: "custom sizes" };
  const devices = Object.fromEntries(Object.keys(DEVICES).map((name) => [name, name]));
  const choices = { ...CHOICES, model: models, device: devices };
  const control = (name) =>
    COUNTS[name]
      ? labelledField(id, name, COUNTS[name].label, { range: { min: COUNTS[name].min, max: COUNTS[name].max, step: 1 } })
      : labelledField(id, name, LABELS[name], { choices: choices[name] });
  return `<div class="hwl-fields">${control("model")}${control("device")}</div>
    <fieldset class="hwl-group"><legend>Sizes of the model</legend>
    <div class="hwl-fields">${each(["style", ...SIZES], control)}</div></fieldset>
    <fieldset class="hwl-group"><legend>The step</legend><div class="hwl-fields">${each(STEP_FIELDS, control)}</div></fieldset>
    <p class="hwl-status" role="status" data-is="status"></p>
    <p class="hwl-note" data-is="verdict"></p>
    <p class="hwl-lead">Alive at the peak:</p>
    <dl class="hwl-facts hwl-short-facts">${each(Object.entries(CATEGORY_NAMES), ([name, text]) =>
      `<div><dt>${text}</dt><dd data-is="bytes of ${name}"></dd></div>`)}</dl>
    <div class="hwl-scroll hwl-answers" role="group" tabindex="0" aria-label="Whether the step fits, for every device">
    <table class="hwl-table"><caption>Where the step fits · computed</caption>
    <thead><tr>${each(VRAM_COLUMNS, (name) => `<th scope="col">${name}</th>`)}</tr></thead>
    <tbody data-is="rows"></tbody></table></div>`;
}

function render({ model, el }) {
  el.innerHTML = skeleton(newId());
  const at = Object.fromEntries([...el.querySelectorAll("[data-is]")].map((part) => [part.dataset.is, part]));
  const fields = Object.keys(START);

  function draw(state) {
    const peak = peakOf(state);
    for (const name of fields) at[name].value = state[name];
    at.num_devices.disabled = state.zero_stage === "0";
    at.rank.disabled = state.adapters === "none";
    at.status.textContent = vramSummary(peak);
    at.verdict.textContent = vramVerdict(state, peak);
    const names = Object.keys(CATEGORY_NAMES);
    vramFacts(peak).forEach(([, written], index) => { at[`bytes of ${names[index]}`].textContent = written; });
    at.rows.innerHTML = each(vramRows(peak), ([name, ...cells]) =>
      `<tr${name === state.device ? ' aria-current="true"' : ""}><th scope="row">${name}</th>
      ${each(cells, (cell) => `<td>${cell}</td>`)}</tr>`.replace(/>\s+</g, "><"));
  }

  // a model brings its sizes, another size is another model; what goes with a size is changed along with it
  function changeOf(name, value) {
    if (name === "model") return { model: value, ...MODELS[value] };
    const { [name]: before, num_heads, num_kv_heads, max_positions, sequence } = kept.now();
    if (value === before || (name !== "style" && !SIZES.includes(name))) return { [name]: value };
    const change = { model: "custom", [name]: value };
    if (name === "num_heads" && num_kv_heads === num_heads) change.num_kv_heads = value;
    if (name !== "style") return change;
    if (STYLES[value].startsWith("layernorm")) change.num_kv_heads = num_heads;
    change.max_positions = STYLES[value].includes("learned") ? max_positions || sequence : 0;
    return change;
  }

  const kept = keepState({ model, el, at, fields, start: START, problemOf: vramProblem, draw });
  for (const name of fields) {
    at[name].onchange = () => {
      const typed = at[name].value;
      const value = COUNTS[name] ? (typed.trim() === "" ? null : Number(typed)) : typed;
      kept.put(name, changeOf(name, value));
      if (!COUNTS[name]) at[name].value = kept.now()[name];
    };
  }
  return kept.stop;
}
