// Number formats: codes, values and how they are written, as in hwlessons.facts.formats; tests compare every code.
// FORMATS comes from Python, in front of this file. A code is the bits of a number read as an integer: a BigInt,
// because fp64 has 64 of them.

const MISSING = "—";
const float64 = new DataView(new ArrayBuffer(8));

function powerOfTwo(exponent) {
  if (exponent < -1022) return powerOfTwo(exponent + 52) * powerOfTwo(-52);
  float64.setUint32(0, (exponent + 1023) << 20);
  float64.setUint32(4, 0);
  return float64.getFloat64(0);
}

// The exponent e with 2**e <= magnitude < 2**(e + 1); the smallest double's for zero.
function floorLog2(magnitude) {
  if (magnitude === 0) return -1074;
  float64.setFloat64(0, magnitude);
  const field = float64.getUint32(0) >>> 20;
  return field ? field - 1023 : floorLog2(magnitude * powerOfTwo(52)) - 52;
}

const bigPower = (exponent) => 1n << BigInt(exponent);
const minExponent = (f) => (f.has_subnormals ? 1 : 0) - f.bias;
const maxCode = (f) => codeOf({ sign: 0, exponent: f.max_fields[0], fraction: f.max_fields[1] }, f);
const lastPlace = (f) => maxCode(f) + (f.specials === "ieee" ? 1n : 0n); // infinity is a place on the line, NaN is not
const sortedValues = (f) => [...f.codebook].sort((a, b) => a - b);
const isNegative = (value) => value < 0 || Object.is(value, -0);

function fieldsOf(code, f) {
  const rest = code >> BigInt(f.fraction_bits);
  return {
    sign: Number(rest >> BigInt(f.exponent_bits)),
    exponent: Number(rest % bigPower(f.exponent_bits)),
    fraction: Number(code % bigPower(f.fraction_bits)),
  };
}

function codeOf({ sign, exponent, fraction }, f) {
  return (BigInt(sign) * bigPower(f.exponent_bits) + BigInt(exponent)) * bigPower(f.fraction_bits) + BigInt(fraction);
}

function isBeyondMax({ exponent, fraction }, f) {
  const [maxExponent, maxFraction] = f.max_fields;
  return exponent > maxExponent || (exponent === maxExponent && fraction > maxFraction);
}

function decode(code, f) {
  if (f.codebook.length) return f.codebook[Number(code)];
  const { sign, exponent, fraction } = fieldsOf(code, f);
  const one = sign ? -1 : 1;
  if (isBeyondMax({ exponent, fraction }, f)) return f.specials === "ieee" && fraction === 0 ? one * Infinity : NaN;
  if (exponent === 0 && f.has_subnormals) return one * fraction * powerOfTwo(minExponent(f) - f.fraction_bits);
  return one * (powerOfTwo(f.fraction_bits) + fraction) * powerOfTwo(exponent - f.bias - f.fraction_bits);
}

// The code written for a NaN; null where a format has none.
function nanCode(f) {
  if (f.specials === "none") return null;
  if (f.specials === "ieee") return maxCode(f) + 1n + bigPower(f.fraction_bits - 1);
  return bigPower(f.bits - f.has_sign) - 1n;
}

function overflowCode(sign, f, overflow) {
  const special = f.specials === "ieee" ? maxCode(f) + 1n : nanCode(f);
  const code = overflow === "saturate" || special === null ? maxCode(f) : special;
  return code + BigInt(sign) * bigPower(f.bits - 1);
}

function roundHalfToEven(number) {
  const below = Math.floor(number);
  const rest = number - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? below + 1 : below;
}

// The code of the number of the format that a value rounds to; null for a NaN that the format cannot hold.
function encode(value, f, overflow) {
  if (Number.isNaN(value)) return nanCode(f);
  if (f.codebook.length) return codebookCode(value, f);
  if (value < 0 && !f.has_sign) return nanCode(f);
  const sign = isNegative(value) && f.has_sign ? 1 : 0;
  const magnitude = Math.abs(value);
  if (magnitude === Infinity) return overflowCode(sign, f, overflow);

  // between two powers of two the numbers of a format are evenly spaced: count the steps
  const one = powerOfTwo(f.fraction_bits);
  let exponent = Math.max(floorLog2(magnitude), minExponent(f));
  let steps = roundHalfToEven(magnitude / powerOfTwo(exponent - f.fraction_bits));
  if (steps === 2 * one) [exponent, steps] = [exponent + 1, one];
  if (steps < one) return codeOf({ sign, exponent: 0, fraction: steps }, f);
  const fields = { sign, exponent: exponent + f.bias, fraction: steps - one };
  return isBeyondMax(fields, f) ? overflowCode(sign, f, overflow) : codeOf(fields, f);
}

function codebookCode(value, f) {
  const values = sortedValues(f);
  const upper = values.findIndex((held) => held > value);
  const below = values.at(upper === -1 ? -1 : Math.max(upper - 1, 0));
  const above = values.at(upper);
  return BigInt(f.codebook.indexOf(value > (below + above) / 2 ? above : below));
}

// The largest number of the format below a value and the smallest above it; null where there is none.
function neighbours(value, f) {
  if (Number.isNaN(value)) return [null, null];
  if (f.codebook.length) {
    const values = sortedValues(f);
    return [values.findLast((held) => held < value) ?? null, values.find((held) => held > value) ?? null];
  }
  const place = placeAtOrBelow(value, f);
  const atOrBelow = numberAt(place, f);
  return [atOrBelow === value ? numberAt(place - 1n, f) : atOrBelow, numberAt(place + 1n, f)];
}

// The number at a place of the line: places count from 0, a sign mirrors them.
function numberAt(place, f) {
  const magnitude = place < 0n ? -place : place;
  if (magnitude > lastPlace(f) || (place < 0n && !f.has_sign)) return null;
  return (place < 0n ? -1 : 1) * decode(magnitude, f);
}

function placeAtOrBelow(value, f) {
  if (value < 0 && !f.has_sign) return -1n;
  const code = encode(Math.abs(value), f, "nonsaturating");
  const magnitude = code > lastPlace(f) ? lastPlace(f) : code;
  const place = value < 0 ? -magnitude : magnitude;
  const number = numberAt(place, f);
  return number > value ? place - 1n : place;
}

// How far apart the numbers of the format are at a value, away from zero; null beyond the largest and at a NaN.
function spacing(value, f) {
  if (!(Math.abs(value) <= f.max)) return null;
  if (!f.codebook.length) return powerOfTwo(Math.max(floorLog2(Math.abs(value)), minExponent(f)) - f.fraction_bits);
  const [below, above] = neighbours(value, f);
  const isHeld = f.codebook.includes(value);
  const low = isHeld && value >= 0 ? value : below;
  const high = isHeld && value < 0 ? value : above;
  return low === null || high === null ? null : high - low;
}

// The shortest decimal that is this very double.
function writeNumber(value) {
  if (value === null) return MISSING;
  if (Number.isNaN(value)) return "nan";
  if (Math.abs(value) === Infinity) return value < 0 ? "-inf" : "inf";
  if (value === 0) return isNegative(value) ? "-0" : "0";
  return Math.abs(value) >= 1e-4 && Math.abs(value) < 1e16 ? String(value) : value.toExponential();
}

function writeShort(value) {
  return value === null || !Number.isFinite(value) ? MISSING : value === 0 ? "0" : value.toExponential(2);
}

// The bits of a code, highest first, fields apart.
function writeBits(code, f) {
  const bits = code.toString(2).padStart(f.bits, "0");
  const [start, end] = f.codebook.length ? [0, 0] : [Number(f.has_sign), f.has_sign + f.exponent_bits];
  return [bits.slice(0, start), bits.slice(start, end), bits.slice(end)].filter(Boolean).join(" ");
}

function relativeError(stored, number) {
  return number === 0 ? (stored === 0 ? 0 : null) : Math.abs(stored - number) / Math.abs(number);
}

// A row of the table of all formats, as text.
function tableRow(number, f, overflow) {
  const code = encode(number, f, overflow);
  if (code === null) return [f.name, "has no nan", MISSING, MISSING, MISSING];
  const stored = decode(code, f);
  const error = relativeError(stored, number);
  return [f.name, writeNumber(stored), writeShort(error), writeShort(spacing(stored, f)), writeBits(code, f)];
}

// What each field of a code says.
function explain(code, f) {
  if (f.codebook.length) return { code: `entry ${code} of a table of ${f.codebook.length} values` };
  const { sign, exponent, fraction } = fieldsOf(code, f);
  const isSubnormal = exponent === 0 && f.has_subnormals;
  const said = { sign: sign ? "minus" : "plus" };
  said.exponent = `${exponent} − ${f.bias}: times 2^${exponent - f.bias}`;
  said.fraction = `${isSubnormal ? 0 : 1} + ${fraction}/${bigPower(f.fraction_bits)}`;
  if (isSubnormal) said.exponent = `0: times 2^${minExponent(f)}, no leading 1 (subnormal)`;
  if (!isBeyondMax({ exponent, fraction }, f)) return said;
  if (f.specials === "nan") return { ...said, exponent: "all ones", fraction: "all ones: NaN" };
  return { ...said, exponent: `${exponent}: infinity or NaN`, fraction: fraction ? `${fraction}: NaN` : "0: infinity" };
}

// What a reader has typed as a number: { value }, or { problem } and perhaps a value to offer.
function readNumber(text, f) {
  const typed = text.trim().replace("−", "-");
  const short = typed.slice(0, 40);
  if (typed === "") return { problem: "Type a number, such as 0.1 or 6e-8." };
  if (/^[+-]?inf(inity)?$/i.test(typed)) return { value: typed.startsWith("-") ? -Infinity : Infinity };
  if (/^[+-]?nan$/i.test(typed)) {
    if (f.specials === "none") return { problem: `${f.name} has no code for NaN.` };
    return { problem: `nan means “not a number”; ${f.name} has a code for it.`, offer: NaN };
  }
  if (/^[+-]?\d*,\d+(e[+-]?\d+)?$/i.test(typed)) return { problem: `Write a point: ${short.replace(",", ".")}` };
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(typed)) {
    return { problem: `“${short}” is no number. Write it like 0.1, -3 or 6e-8.` };
  }
  const value = Number(typed);
  if (!Number.isFinite(value)) return { problem: `${short} is beyond fp64 (1.798e+308). For infinity type inf.` };
  if (value !== 0) return { value };
  if (/[1-9]/.test(typed.split(/e/i)[0])) return { problem: `${short} is closer to 0 than fp64 goes (4.94e-324).` };
  if (!isNegative(value)) return { value };
  if (f.codebook.length || !f.has_sign) return { problem: `-0 equals 0; ${f.name} has no code of its own for it.` };
  return { problem: `-0 equals 0; ${f.name} has a code of its own for it.`, offer: -0 };
}

// What a reader has typed or pasted as bits: { code } or { problem }.
function readBits(text, f) {
  const digits = text.replace(/[\s_]/g, "");
  if (/[^01]/.test(digits)) return { problem: "Bits are written with 0 and 1 only." };
  if (digits.length !== f.bits) return { problem: `${f.name} has ${f.bits} bits; here are ${digits.length}.` };
  return { code: BigInt(`0b${digits}`) };
}
