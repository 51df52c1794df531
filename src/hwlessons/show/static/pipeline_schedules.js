// Pipeline schedules, as hwlessons.formulas.pipeline_orders and pipeline_schedules play them; tests compare the two.
// Times are integers: a forward through one chunk takes 100, a backward the ratio's hundredths.

const FORWARD = 100;

function warmupForwards({ schedule, num_stages: p, num_microbatches: m, num_chunks: v }, stage) {
  const left = p - 1 - stage;
  if (schedule === "gpipe") return m;
  if (schedule === "1f1b") return Math.min(left, m);
  return Math.min(2 * left + (v - 1) * p, v * m);
}

function stageOrder(state, stage) {
  const { schedule, num_stages: p, num_microbatches: m, num_chunks: v } = state;
  const group = schedule === "interleaved" ? p : m;
  const task = (kind, number) => {
    const turn = Math.floor(number / group);
    const chunk = turn % v;
    const microbatch = Math.floor(turn / v) * group + (number % group);
    return { kind, chunk: kind === "F" ? chunk : v - 1 - chunk, microbatch };
  };
  const warmup = warmupForwards(state, stage);
  const order = [];
  for (let number = 0; number < warmup; number += 1) order.push(task("F", number));
  for (let number = 0; number < m * v; number += 1) {
    if (warmup + number < m * v) order.push(task("F", warmup + number));
    order.push(task("B", number));
  }
  return order;
}

// Every stage runs its order, each task as soon as its input is there.
function playSchedule(state) {
  const { num_stages: p, num_microbatches: m, num_chunks: v } = state;
  const duration = { F: FORWARD, B: Math.round(state.backward_ratio * 100) };
  const last = p * v - 1;
  const ends = new Map();
  const key = (kind, part, microbatch) => `${kind} ${part} ${microbatch}`;
  const ready = ({ kind, microbatch }, part) => {
    if (kind === "F") return part ? ends.get(key("F", part - 1, microbatch)) : 0;
    return ends.get(part < last ? key("B", part + 1, microbatch) : key("F", part, microbatch));
  };
  const stages = Array.from({ length: p }, (_, stage) => ({ order: stageOrder(state, stage), actions: [], free: 0 }));
  for (let moved = true; moved; ) {
    moved = false;
    stages.forEach(({ order, actions }, stage) => {
      while (actions.length < order.length) {
        const task = order[actions.length];
        const part = task.chunk * p + stage;
        const from = ready(task, part);
        if (from === undefined) break;
        const start = Math.max(from, stages[stage].free);
        const end = start + duration[task.kind];
        ends.set(key(task.kind, part, task.microbatch), end);
        actions.push({ ...task, start, end });
        stages[stage].free = end;
        moved = true;
      }
    });
  }
  const total = Math.max(...stages.map(({ free }) => free));
  return { stages: stages.map(({ actions }) => actions), total, work: m * v * (duration.F + duration.B) };
}

function mostStashed(actions) {
  let [held, most] = [0, 0];
  for (const { kind } of actions) {
    held += kind === "F" ? 1 : -1;
    most = Math.max(most, held);
  }
  return most;
}

// a fraction with at most two decimals, a half upwards: 28.5, 3.67, 12
function writeFraction(numerator, denominator) {
  const hundredths = Math.floor((200 * numerator + denominator) / (2 * denominator));
  return String(hundredths / 100);
}

const CHUNK_NAMES = "abcd";
const taskName = ({ kind, chunk, microbatch }, { num_chunks }) =>
  `${kind}${microbatch}${num_chunks > 1 ? CHUNK_NAMES[chunk] : ""}`;

function scheduleFacts(state, { total, work }) {
  const forward = FORWARD * state.num_chunks;
  const bubble = total - work;
  return {
    "whole step": writeFraction(total, forward),
    "work of each stage": writeFraction(work, forward),
    "bubble": writeFraction(bubble, forward),
    "share of the total": `${writeFraction(100 * bubble, total)} %`,
    "over the ideal": `${writeFraction(100 * bubble, work)} %`,
  };
}

function scheduleSummary(state, facts) {
  const count = (number, word, plural) => `${number} ${number === 1 ? word : plural}`;
  const chunks = state.num_chunks > 1 ? ` of ${state.num_chunks} chunks` : "";
  return `${SCHEDULE_NAMES[state.schedule]}, ${count(state.num_stages, "stage", "stages")}${chunks},` +
    ` ${count(state.num_microbatches, "microbatch", "microbatches")}: each stage waits ${facts.bubble} of` +
    ` ${facts["whole step"]} forward times. Bubble: ${facts["share of the total"]} share of the total,` +
    ` ${facts["over the ideal"]} over the ideal.`;
}

function scheduleRows(state, { stages }) {
  return stages.map((actions, stage) => {
    const stashed = mostStashed(actions);
    const held = writeFraction(stashed, state.num_chunks) + (state.num_chunks > 1 ? ` (${stashed} chunks)` : "");
    return [`stage ${stage}`, held, actions.map((action) => taskName(action, state)).join(" ")];
  });
}

// Which field of a state cannot be used, and why; null where all is well.
function scheduleProblem(state) {
  if (!Object.hasOwn(SCHEDULE_NAMES, state?.schedule)) {
    const known = Object.keys(SCHEDULE_NAMES).join(", ");
    return { at: "schedule", text: `Unknown schedule ${state?.schedule}; there are ${known}.` };
  }
  for (const [name, { min, max, label }] of Object.entries(SCHEDULE_COUNTS)) {
    const value = state[name];
    if (Number.isInteger(value) && value >= min && value <= max) continue;
    return { at: name, text: `${label} must be a whole number from ${min} to ${max}.` };
  }
  const { min, max } = BACKWARD_RATIO;
  const ratio = state.backward_ratio;
  if (!(Math.round(ratio * 100) / 100 === ratio && ratio >= min && ratio <= max)) {
    return { at: "backward_ratio", text: `The ratio must be from ${min} to ${max}, with at most two decimals.` };
  }
  const { num_stages: p, num_microbatches: m, num_chunks: v } = state;
  if (state.schedule !== "interleaved") {
    return v === 1 ? null : { at: "num_chunks", text: "Only interleaved splits a stage: there must be 1 chunk." };
  }
  if (v === 1) return { at: "num_chunks", text: "Interleaved needs at least 2 chunks; with 1 it is 1F1B." };
  if (m % p === 0) return null;
  return { at: "num_microbatches", text: `Interleaved needs a multiple of the ${p} stages; ${m} microbatches are none.` };
}
