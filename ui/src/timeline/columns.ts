// Columns of whole numbers as show/report/columns.py packs them.

export function varints(bytes: Uint8Array): Float64Array {
  let count = 0;
  for (let at = 0; at < bytes.length; at++) if (bytes[at]! < 128) count++;
  const values = new Float64Array(count);
  let place = 0;
  for (let at = 0; at < bytes.length; at++) {
    let byte = bytes[at]!;
    let value = byte & 127;
    // Numbers may have more bits than an integer of JavaScript's shifts.
    for (let unit = 128; byte >= 128; unit *= 128) {
      byte = bytes[++at]!;
      value += (byte & 127) * unit;
    }
    values[place++] = value;
  }
  return values;
}

export function deltas(bytes: Uint8Array): Float64Array {
  const values = varints(bytes);
  let last = 0;
  for (let place = 0; place < values.length; place++) {
    const packed = values[place]!;
    last += packed % 2 ? -(packed + 1) / 2 : packed / 2;
    values[place] = last;
  }
  return values;
}

/** Place of the first of the sorted values, from `from` on, that is over the limit; near ones are found soonest. */
export function firstOver(values: Float64Array, limit: number, from = 0): number {
  let low = from;
  let step = 1;
  while (low + step <= values.length && values[low + step - 1]! <= limit) {
    low += step;
    step *= 2;
  }
  let high = Math.min(values.length, low + step - 1);
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle]! > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}
