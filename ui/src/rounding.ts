// Numbers rounded as Python does it: once, half to even, from their exact values. toFixed rounds ties away from zero.

/** A finite number as an exact fraction. */
function fraction(value: number): [bigint, bigint] {
  let [top, halvings] = [value, 0];
  for (; !Number.isInteger(top); halvings++) top *= 2;
  return [BigInt(top), 2n ** BigInt(halvings)];
}

/** The whole number next to a fraction of positive numbers; of two that are as near, the even one. */
export function divided(top: bigint, bottom: bigint): bigint {
  const [whole, twice] = [top / bottom, 2n * (top % bottom)];
  return twice > bottom || (twice === bottom && whole % 2n === 1n) ? whole + 1n : whole;
}

/** Python's `f"{value:.{places}f}"`. */
export function fixed(value: number, places: number): string {
  const [top, bottom] = fraction(Math.abs(value));
  return signed(value, withPoint(divided(top * 10n ** BigInt(places), bottom), places));
}

/** Python's `f"{value:.{digits}g}"`. */
export function general(value: number, digits: number): string {
  if (value === 0) return signed(value, "0");
  const [top, bottom] = fraction(Math.abs(value));
  let exponent = Number(value.toExponential().split("e")[1]);
  let found = shifted(top, bottom, digits - 1 - exponent);
  if (found === 10n ** BigInt(digits)) [found, exponent] = [found / 10n, exponent + 1];
  if (exponent >= -4 && exponent < digits) return signed(value, bare(withPoint(found, digits - 1 - exponent)));
  const power = `${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  return signed(value, `${bare(withPoint(found, digits - 1))}e${power}`);
}

/** Digits in groups of three. */
export function grouped(digits: string): string {
  return digits.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** A whole number of which the last `places` digits stand behind the point. */
export function withPoint(whole: bigint, places: number): string {
  const digits = whole.toString().padStart(places + 1, "0");
  return places ? `${digits.slice(0, -places)}.${digits.slice(-places)}` : digits;
}

function shifted(top: bigint, bottom: bigint, places: number): bigint {
  const power = 10n ** BigInt(Math.abs(places));
  return places < 0 ? divided(top, bottom * power) : divided(top * power, bottom);
}

function bare(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function signed(value: number, text: string): string {
  return value < 0 || Object.is(value, -0) ? `-${text}` : text;
}
