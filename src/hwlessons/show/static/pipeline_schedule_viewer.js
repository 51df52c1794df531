// The pipeline-schedule viewer: `render` draws it, in JupyterLab on anywidget's model, on a page on that of element.js.

const SCHEDULE_FACTS = ["whole step", "work of each stage", "bubble", "share of the total", "over the ideal"];
const START = { schedule: "1f1b", num_stages: 4, num_microbatches: 8, num_chunks: 1, backward_ratio: 2 };
const ROW = 34; // pixels that a stage is high

function skeleton(id) {
  const counts = each(Object.entries(SCHEDULE_COUNTS), ([name, { min, max, label }]) =>
    labelledField(id, name, label, { range: { min, max, step: 1 } }));
  const ratio = labelledField(id, "backward_ratio", "Backward time / forward time", { range: { ...BACKWARD_RATIO, step: 0.25 } });
  return `<div class="hwl-fields">${labelledField(id, "schedule", "Schedule", { choices: SCHEDULE_NAMES })}
    ${counts}${ratio}</div>
    <p class="hwl-status" role="status" data-is="status"></p>
    <dl class="hwl-facts hwl-short-facts">${each(SCHEDULE_FACTS, (name) => `<div><dt>${name}</dt><dd data-is="${name}"></dd></div>`)}</dl>
    <p class="hwl-note">F3: forward of microbatch 3, B3: its backward; what is empty is the bubble. <span data-is="chunks say"></span></p>
    <div class="hwl-lanes"><div class="hwl-lane-names" aria-hidden="true" data-is="names"></div>
    <div class="hwl-scroll" role="group" tabindex="0" aria-label="The schedule in time" data-is="lanes"></div></div>
    <div class="hwl-scroll hwl-order" role="group" tabindex="0" aria-label="What each stage does and holds">
    <table class="hwl-table"><caption>What each stage holds and does · simulated</caption>
    <thead><tr>${each(SCHEDULE_COLUMNS, (name) => `<th scope="col">${name}</th>`)}</tr></thead>
    <tbody data-is="rows"></tbody></table></div>`;
}

function slot({ kind, start, end }, name, lane, scale) {
  const [x, width] = [start * scale, (end - start) * scale];
  return `<g class="hwl-slot hwl-slot-${kind}"><rect x="${x + 1}" y="${lane * ROW + 3}" width="${width - 2}" height="${ROW - 6}"/>
    <text x="${x + width / 2}" y="${lane * ROW + ROW / 2}">${name}</text></g>`;
}

function drawing(state, { stages, total }) {
  const longest = taskName({ kind: "F", chunk: 0, microbatch: state.num_microbatches - 1 }, state).length;
  const scale = (4 + 7 * longest) / Math.min(FORWARD, Math.round(state.backward_ratio * 100));
  const [width, height] = [total * scale, stages.length * ROW];
  const forward = FORWARD * state.num_chunks;
  const every = Math.max(1, Math.ceil(45 / (forward * scale))) * forward;
  const marks = Array.from({ length: Math.floor(total / every) + 1 }, (_, index) => index * every);
  const mark = (time) => `<path d="M${time * scale} ${height}v5"/><text x="${time * scale}" y="${height + 16}"
    ${time ? "" : 'class="hwl-first"'}>${time / forward}</text>`;
  return `<svg role="img" aria-label="Each stage's work in time; the table below says the same in words"
    width="${width + 12}" height="${height + 44}" viewBox="0 0 ${width + 12} ${height + 44}">
    ${each(stages, (_, lane) => `<path class="hwl-lane" d="M0 ${lane * ROW + ROW / 2}H${width}"/>`)}
    ${stages.map((actions, lane) => each(actions, (one) => slot(one, taskName(one, state), lane, scale))).join("")}
    ${each(marks, mark)}
    <text class="hwl-first" x="0" y="${height + 36}">time, in forwards of one microbatch through a stage</text></svg>`;
}

function render({ model, el }) {
  el.innerHTML = skeleton(newId());
  const at = Object.fromEntries([...el.querySelectorAll("[data-is]")].map((part) => [part.dataset.is, part]));
  const fields = ["schedule", ...Object.keys(SCHEDULE_COUNTS), "backward_ratio"];

  function draw(state) {
    const played = playSchedule(state);
    const facts = scheduleFacts(state, played);
    for (const name of fields) at[name].value = state[name];
    at.num_chunks.disabled = state.schedule !== "interleaved";
    for (const name of SCHEDULE_FACTS) at[name].textContent = facts[name];
    at.status.textContent = scheduleSummary(state, facts);
    at["chunks say"].textContent = state.num_chunks > 1 ? "The letter is the chunk: a is the stage's first." : "";
    at.names.innerHTML = each(played.stages, (_, stage) => `<span>stage ${stage}</span>`);
    at.lanes.innerHTML = drawing(state, played);
    at.rows.innerHTML = each(scheduleRows(state, played), ([name, ...cells]) =>
      `<tr><th scope="row">${name}</th>${each(cells, (cell) => `<td>${cell}</td>`)}</tr>`);
  }

  const kept = keepState({ model, el, at, fields, start: START, problemOf: scheduleProblem, draw });
  at.schedule.onchange = () => {
    const [schedule, { num_chunks }] = [at.schedule.value, kept.now()];
    kept.put("schedule", { schedule, num_chunks: schedule === "interleaved" ? Math.max(num_chunks, 2) : 1 });
    at.schedule.value = kept.now().schedule;
  };
  for (const name of fields.slice(1)) {
    at[name].onchange = () => kept.put(name, { [name]: at[name].value.trim() === "" ? null : Number(at[name].value) });
  }
  return kept.stop;
}
