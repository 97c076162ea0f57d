// From logits to the probability of being drawn: the same rule as `truncate` in decoding/sampling.py.
//
//   p_i ∝ exp(logit_i / temperature)     over the k likeliest, and of those the likeliest that sum to p

// Words by their logits, the largest first; equal ones stay in order. It is the same at every temperature.
export function ordered(logits) {
  const order = Uint32Array.from(logits.keys());
  return order.sort((a, b) => logits[b] - logits[a] || a - b);
}

// The probability of each word in that order; what is cut off has 0. At temperature 0 the first is certain.
export function truncated(logits, order, { temperature, topK = 0, topP = 1 }) {
  const probabilities = new Float64Array(order.length);
  if (temperature === 0) {
    probabilities[0] = 1;
    return probabilities;
  }
  const count = topK > 0 ? Math.min(topK, order.length) : order.length;
  const first = logits[order[0]]; // taken off: divided by a tiny temperature it would overflow
  let sum = 0;
  for (let i = 0; i < count; i++) sum += probabilities[i] = Math.exp((logits[order[i]] - first) / temperature);
  let before = 0;
  let kept = 0;
  for (let i = 0; i < count; i++) {
    const p = probabilities[i] / sum;
    // A word stays if those before it do not yet sum to p; the first always stays.
    probabilities[i] = topP >= 1 || before < topP ? p : 0;
    before += p;
    kept += probabilities[i];
  }
  for (let i = 0; i < count; i++) probabilities[i] /= kept;
  return probabilities;
}

export function entropy(probabilities) {
  let sum = 0;
  for (const p of probabilities) if (p > 0) sum -= p * Math.log(p);
  return sum;
}
