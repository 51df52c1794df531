// A step's peak from the table of moments, in whole bytes (BigInt), and what is said about it.

const GIB = 1n << 30n;
const columnsOf = {};

// a column's indices, kept in the table as steps from one to the next
function column(number) {
  let sum = 0;
  return (columnsOf[number] ??= MOMENTS.columns[number].map((step) => (sum += step)));
}

const isGrouped = (state) => state.num_kv_heads < state.num_heads;
const styleOf = (state) => STYLES[state.style] + (isGrouped(state) ? " grouped" : "");
const ceilDivide = (number, by) => (number + by - 1n) / by;

function attentionOf(state) {
  return state.attention + (state.attention === "materialised" && state.microbatch === 1 ? " one sequence" : "");
}

function symbolsOf(state) {
  const { width, num_heads, num_kv_heads } = state;
  const headDim = width / num_heads;
  const sizes = {
    b: state.microbatch, s: state.sequence, "s/32": Math.ceil(state.sequence / 32) * 32, h: width, a: num_heads,
    d: headDim, k: num_kv_heads * headDim, f: state.ffn_width, V: state.vocab_size, p: state.max_positions,
    n: state.num_microbatches, L: state.num_layers, r: state.adapters === "none" ? 0 : state.rank,
  };
  return Object.fromEntries(Object.entries(sizes).map(([symbol, size]) => [symbol, BigInt(size)]));
}

// the most that the step holds after any operator, when that is, and the bytes of each category then
function peakOf(state) {
  const symbols = symbolsOf(state);
  const products = MOMENTS.products.map((product) =>
    product.split(" ").reduce((total, symbol) => (symbol ? total * symbols[symbol] : total), 1n));
  const values = {};
  const value = (index) => (values[index] ??= valueOf(MOMENTS.forms[index], products));
  const devices = BigInt(state.num_devices);
  const shared = ["optimizer_state", "gradients", "parameters"].slice(0, Number(state.zero_stage));
  const here = (category, bytes) => (shared.includes(category) ? bytes : bytes * devices); // of so many devices

  const { precision, recomputation, optimizer, implementation, adapters } = state;
  const key = [styleOf(state), precision, recomputation, attentionOf(state), adapters].join(" / ");
  const [moments, ...columns] = MOMENTS.structures[key][state.num_microbatches > 1 ? 1 : 0].map(column);
  const update = [styleOf(state), precision === "bf16" ? 2 : 4, optimizer, implementation, adapters].join(" / ");
  const [stateForm, temporaryForms] = MOMENTS.updates[update];
  const found = moments.map((moment, row) => {
    const live = Object.fromEntries(CATEGORIES.map((category, c) => [category, here(category, value(columns[c][row]))]));
    live.optimizer_state += here("optimizer_state", value(stateForm));
    return { moment: MOMENTS.moments[moment], live };
  });
  // the last moment is the optimizer's in place; its temporaries come on top
  const { moment: [phase, layer, , place], live: before } = found.at(-1);
  const most = temporaryForms.map(value).reduce((one, other) => (other > one ? other : one));
  const temporaries = before.temporaries + ceilDivide(here("optimizer_state", most), devices) * devices;
  found.push({ moment: [phase, layer, "temporaries", place], live: { ...before, temporaries } });

  for (const one of found) one.total = Object.values(one.live).reduce((sum, bytes) => sum + bytes);
  const top = found.reduce((one, other) => (other.total > one.total ? other : one));
  const number = { "last block": state.num_layers - 1, "second block": 1 }[top.moment[3]] ?? 0;
  return {
    bytes: ceilDivide(top.total, devices),
    phase: top.moment[0],
    place: top.moment[3],
    tensor: top.moment[2].replaceAll("*", number),
    atPeak: Object.fromEntries(Object.entries(top.live).map(([name, bytes]) => [name, ceilDivide(bytes, devices)])),
  };
}

function valueOf(form, products) {
  let total = 0n;
  for (let at = 0; at < form.length; at += 2) total += products[form[at]] * BigInt(form[at + 1]);
  return total;
}

function writeGib(bytes) {
  const hundredths = (200n * bytes + GIB) / (2n * GIB);
  const whole = String(hundredths / 100n).replace(/\B(?=(\d{3})+$)/g, ",");
  return `${whole}.${String(hundredths % 100n).padStart(2, "0")} GiB`;
}

function vramSummary(peak) {
  const inUpdate = peak.tensor === "in place" ? "which works in place" : "with its temporaries";
  const when = peak.phase === "optimizer" ? inUpdate : `${PLACES[peak.place]}, once “${peak.tensor}” is written`;
  return `The step takes ${writeGib(peak.bytes)} at its peak, ${PHASES[peak.phase]}, ${when}.`;
}

function vramFacts(peak) {
  return Object.entries(CATEGORY_NAMES).map(([name, text]) => [text, writeGib(peak.atPeak[name])]);
}

function vramRows(peak) {
  return Object.entries(DEVICES).map(([name, [capacity, memory]]) => {
    const left = BigInt(capacity) - peak.bytes;
    return [name, memory, left >= 0n ? `fits, ${writeGib(left)} left` : `does not fit, ${writeGib(-left)} missing`];
  });
}

function vramVerdict(state, peak) {
  const capacity = BigInt(DEVICES[state.device][0]);
  const where = devicesOf(state) > 1 ? `each of ${devicesOf(state)} ${state.device}` : `one ${state.device}`;
  if (peak.bytes <= capacity) return `It fits on ${where}.`;
  const short = `It does not fit on ${where}: ${writeGib(peak.bytes - capacity)} are missing.`;
  for (const [texts, change] of changes(state)) {
    const changed = peakOf({ ...state, ...change });
    if (changed.bytes > capacity) continue;
    return `${short} The cheapest remedy: ${texts.join(", and ")}. The peak is then ${writeGib(changed.bytes)}.`;
  }
  return `${short} No remedy is enough here, and no two together.`;
}

const devicesOf = ({ zero_stage, num_devices }) => (zero_stage === "0" ? 1 : num_devices);

// all remedies, the cheapest first: single ones, then pairs, of which the costlier one decides
function* changes(state) {
  const kinds = [smallerMicrobatches(state), moreRecomputation(state), moreSharing(state), freezing(state)];
  for (const kind of kinds) for (const [text, change] of kind) yield [[text], change];
  for (const [index, costlier] of kinds.entries()) {
    for (const [more, further] of costlier) {
      for (const kind of kinds.slice(0, index)) {
        for (const [text, change] of kind) yield [[text, more], { ...change, ...further }];
      }
    }
  }
}

function smallerMicrobatches({ microbatch, num_microbatches }) {
  const remedies = [];
  while (microbatch % 2 === 0 && 2 * num_microbatches <= COUNTS.num_microbatches.max) {
    microbatch /= 2;
    num_microbatches *= 2;
    const text = `microbatches of ${microbatch} with ${num_microbatches} accumulation steps`;
    remedies.push([text, { microbatch, num_microbatches }]);
  }
  return remedies;
}

function moreRecomputation({ recomputation }) {
  const names = Object.keys(CHOICES.recomputation);
  const further = names.slice(names.indexOf(recomputation) + 1);
  return further.map((name) => [`recompute ${CHOICES.recomputation[name]}`, { recomputation: name }]);
}

function moreSharing(state) {
  const remedies = [];
  const [stage, before] = [Number(state.zero_stage), devicesOf(state)];
  for (let devices = Math.max(before, 2); devices <= Math.max(before, MOST_SHARED); devices *= 2) {
    for (let more = Math.max(stage, 1); more <= 3; more += 1) {
      if (more === stage && devices === before) continue;
      const text = `share ${SHARED[more - 1]} between ${devices} devices (ZeRO ${more})`;
      remedies.push([text, { zero_stage: String(more), num_devices: devices }]);
    }
  }
  return remedies;
}

function freezing(state) {
  if (state.adapters !== "none" || stepProblem({ ...state, adapters: "LoRA" })) return [];
  return [[`freeze the model and train adapters of rank ${state.rank}`, { adapters: "LoRA" }]];
}

// which field of a state cannot be used, and why; null where all is well
function vramProblem(state) {
  const entries = Object.keys(START);
  if (!state || entries.some((name) => !(name in state)) || Object.keys(state).length !== entries.length) {
    return { at: "model", text: "The state must have all its entries and no others." };
  }
  const allowed = { ...CHOICES, model: { ...MODELS, custom: "" }, device: DEVICES };
  for (const [name, choices] of Object.entries(allowed)) {
    const isKnown = typeof state[name] === "string" && Object.hasOwn(choices, state[name]);
    if (!isKnown) return { at: name, text: `Unknown: ${state[name]}.` };
  }
  for (const [name, { min, max, label }] of Object.entries(COUNTS)) {
    const isKnown = Number.isInteger(state[name]) && state[name] >= min && state[name] <= max;
    if (!isKnown) return { at: name, text: `${label} must be a whole number from ${min} to ${max}.` };
  }
  for (const [name, value] of Object.entries(MODELS[state.model] ?? {})) {
    if (state[name] !== value) return { at: name, text: `In ${state.model} this is ${value}.` };
  }
  return shapeProblem(state) ?? stepProblem(state);
}

function shapeProblem({ style, width, num_heads, num_kv_heads, max_positions }) {
  const hasPositions = STYLES[style].includes("learned");
  if (width % num_heads) return { at: "num_heads", text: `Heads must divide the width, ${width}.` };
  if (num_heads % num_kv_heads) return { at: "num_kv_heads", text: `Key-value heads must divide the ${num_heads} heads.` };
  if (num_kv_heads < num_heads && STYLES[style].startsWith("layernorm")) {
    return { at: "num_kv_heads", text: `Blocks as in ${style} have as many as heads: ${num_heads}.` };
  }
  if (!hasPositions && (width / num_heads) % 2) {
    return { at: "num_heads", text: "Rotary positions need heads of an even width." };
  }
  if (!hasPositions && max_positions) return { at: "max_positions", text: `Blocks as in ${style} have none: 0.` };
  if (hasPositions && !max_positions) return { at: "max_positions", text: `Blocks as in ${style} have at least 1.` };
  return null;
}

function stepProblem({ style, sequence, max_positions, attention, num_heads, num_layers, adapters }) {
  if (STYLES[style].includes("learned") && sequence > max_positions) {
    return { at: "sequence", text: `The model takes at most ${max_positions} tokens in a sequence, not ${sequence}.` };
  }
  if (attention === "materialised" && (num_heads < 2 || sequence < 2)) {
    return { at: "attention", text: "Materialised attention is counted for at least 2 heads and 2 tokens." };
  }
  if (adapters !== "none" && (attention !== "fused" || num_layers < 3)) {
    return { at: "adapters", text: "Adapters are counted with fused attention and at least 3 layers." };
  }
  return null;
}
