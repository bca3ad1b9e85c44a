// Where rectangles lie whose areas are as given and whose sides are as equal as can be.
// Bruls, Huizing, van Wijk: Squarified Treemaps (2000).

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** A box for each value, in their order; sorted from the largest they come out squarest. */
export function squarified(values: number[], room: Box): Box[] {
  const total = values.reduce((sum, value) => sum + value, 0);
  const scale = total > 0 ? (room.width * room.height) / total : 0;
  const areas = values.map((value) => value * scale);
  const boxes: Box[] = [];
  let free = room;
  while (boxes.length < areas.length) {
    const count = rowLength(areas.slice(boxes.length), Math.min(free.width, free.height));
    const row = areas.slice(boxes.length, boxes.length + count);
    boxes.push(...laid(row, free));
    free = rest(free, row);
  }
  return boxes;
}

/** How many areas make the best row along `side`: one more is taken as long as the worst gets no worse. */
function rowLength(areas: number[], side: number): number {
  let count = 1;
  while (count < areas.length && worst(areas.slice(0, count + 1), side) <= worst(areas.slice(0, count), side)) count++;
  return count;
}

/** The largest ratio of sides in a row. */
function worst(row: number[], side: number): number {
  const sum = total(row);
  if (sum <= 0 || side <= 0) return Infinity;
  const [least, most] = [Math.min(...row), Math.max(...row)];
  return Math.max((side * side * most) / (sum * sum), (sum * sum) / (side * side * least));
}

function laid(row: number[], free: Box): Box[] {
  const across = free.width >= free.height;
  const depth = depthOf(row, free);
  let at = across ? free.y : free.x;
  return row.map((area) => {
    const length = depth > 0 ? area / depth : 0;
    const box = across
      ? { x: free.x, y: at, width: depth, height: length }
      : { x: at, y: free.y, width: length, height: depth };
    at += length;
    return box;
  });
}

function rest(free: Box, row: number[]): Box {
  const depth = depthOf(row, free);
  return free.width >= free.height
    ? { ...free, x: free.x + depth, width: Math.max(free.width - depth, 0) }
    : { ...free, y: free.y + depth, height: Math.max(free.height - depth, 0) };
}

function depthOf(row: number[], free: Box): number {
  const side = Math.min(free.width, free.height);
  return side > 0 ? total(row) / side : 0;
}

function total(row: number[]): number {
  return row.reduce((sum, area) => sum + area, 0);
}
