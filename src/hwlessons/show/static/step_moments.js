// The moments of a step, from the lists that hwlessons.show.widgets.step_moments made: no byte is computed here.

const NUM_CATEGORIES = STEP_CATEGORIES.length;

const stepChoice = ({ accumulation_steps, plan }) => STEP_DATA.choices[`${accumulation_steps} ${plan}`];

function readGroup(group, microbatch) {
  let now = [];
  return group.map(([what, ...changes]) => {
    now = [...now];
    for (let index = 0; index < changes.length; index += 2) now[changes[index]] = changes[index + 1];
    return {
      microbatch,
      where: STEP_DATA.wheres[now[0]],
      what: STEP_DATA.whats[what],
      total: STEP_DATA.bytes[now[1]],
      categories: now.slice(2, 2 + NUM_CATEGORIES).map((place) => STEP_DATA.bytes[place]),
      cells: now.slice(2 + NUM_CATEGORIES).map((place) => STEP_DATA.cells[place]),
    };
  });
}

const readSteps = new Map();

// all moments of a state's choice: the first microbatch, the others, which are all alike, and the optimizer
function momentsOf({ accumulation_steps, plan }) {
  const key = `${accumulation_steps} ${plan}`;
  if (!readSteps.has(key)) {
    const [first, further, end] = stepChoice({ accumulation_steps, plan }).groups;
    const microbatches = Array.from({ length: accumulation_steps }, (_, n) => readGroup(n ? further : first, n));
    readSteps.set(key, [...microbatches.flat(), ...readGroup(end, null)]);
  }
  return readSteps.get(key);
}

function writeBytes(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 102400 ? `${(bytes / 1024).toFixed(2)} KiB` : `${(bytes / 1048576).toFixed(2)} MiB`;
}

function sentenceOf({ where, what, microbatch }, { accumulation_steps }) {
  const text = `${where}; ${what}.`;
  if (microbatch !== null) return `Microbatch ${microbatch + 1} of ${accumulation_steps}, ${text}`;
  return text[0].toUpperCase() + text.slice(1);
}

function stepRows({ cells }) {
  const width = STEP_COLUMNS.length - 1;
  return STEP_LAYERS.map((layer, row) => [layer, ...cells.slice(row * width, (row + 1) * width)]);
}

// Which field of a state cannot be used, and why; null where all is well.
function stepProblem(state) {
  if (!STEP_ACCUMULATION.includes(state?.accumulation_steps)) {
    return { at: "accumulation_steps", text: `Accumulation steps must be one of ${STEP_ACCUMULATION.join(", ")}.` };
  }
  if (!Object.hasOwn(STEP_PLANS, state.plan)) {
    return { at: "plan", text: `Unknown plan ${state.plan}; there are ${Object.keys(STEP_PLANS).join(", ")}.` };
  }
  const last = momentsOf(state).length - 1;
  if (Number.isInteger(state.moment) && state.moment >= 0 && state.moment <= last) return null;
  return { at: "moment", text: `The moment must be a whole number from 0 to ${last}.` };
}
