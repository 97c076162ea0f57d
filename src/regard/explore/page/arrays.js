// Matrices as they arrive: byte planes, gzipped (the inverse of arrays.py).

export async function inflate(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export async function unpack(head, packed) {
  const raw = await inflate(packed);
  const count = raw.length / (head.kind === "long" ? 3 : 2);
  const values = new Float32Array(count);
  if (head.kind === "long") {
    const bits = new Uint32Array(values.buffer);
    for (let i = 0; i < count; i++) bits[i] = (raw[i] << 24) | (raw[count + i] << 16) | (raw[2 * count + i] << 8);
  } else if (head.kind === "unit") {
    for (let i = 0; i < count; i++) values[i] = ((raw[i] << 2) | raw[count + i]) / 1023;
  } else {
    for (let i = 0; i < count; i++) values[i] = half((raw[i] << 8) | raw[count + i]);
  }
  return { head, values };
}

// A float16 from its bits.
export function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

export function row(matrix, index) {
  const columns = matrix.head.shape.at(-1);
  return matrix.values.subarray(index * columns, (index + 1) * columns);
}

export function largest(values) {
  let most = 0;
  for (const value of values) if (Number.isFinite(value) && Math.abs(value) > most) most = Math.abs(value);
  return most;
}

// A named array of two axes (named.py) as a matrix for a heat map.
export function matrixOf(named) {
  const shape = [named.values.length, named.values[0]?.length ?? 0];
  return { head: { shape }, values: Float32Array.from(named.values.flat(), (value) => value ?? NaN) };
}
