// Names that are too long for their place.

/** Without its middle: kernels often differ in how they end. */
export function middleCut(name: string, letters: number): string {
  if (name.length <= letters) return name;
  const last = Math.floor((letters - 1) / 3);
  return `${name.slice(0, letters - 1 - last)}…${last ? name.slice(-last) : ""}`;
}
