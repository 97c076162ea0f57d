// From logits to sampling probabilities: the same rule as `truncate` in decoding/sampling.py.
//
//   p_i ∝ exp(logit_i / temperature)     over the k likeliest, and of those the fewest that sum to p

// Words by logit, the largest first; ties keep their order. The order is the same at every temperature.
export function ordered(logits) {
  const order = Uint32Array.from(logits.keys());
  return order.sort((a, b) => logits[b] - logits[a] || a - b);
}

// The probability of each word in that order; 0 for words that are cut off. At temperature 0 the first is certain.
export function truncated(logits, order, { temperature, topK = 0, topP = 1 }) {
  const probabilities = new Float64Array(order.length);
  if (temperature === 0) {
    probabilities[0] = 1;
    return probabilities;
  }
  const count = topK > 0 ? Math.min(topK, order.length) : order.length;
  const first = logits[order[0]]; // subtracted: exp(logit / temperature) could overflow
  let sum = 0;
  for (let i = 0; i < count; i++) sum += probabilities[i] = Math.exp((logits[order[i]] - first) / temperature);
  let before = 0;
  let total = 0;
  for (let i = 0; i < count; i++) {
    const p = probabilities[i] / sum;
    // A word stays if the words before it do not yet sum to p, so the first always stays.
    probabilities[i] = topP >= 1 || before < topP ? p : 0;
    before += p;
    total += probabilities[i];
  }
  for (let i = 0; i < count; i++) probabilities[i] /= total;
  return probabilities;
}

export function entropy(probabilities) {
  let sum = 0;
  for (const p of probabilities) if (p > 0) sum -= p * Math.log(p);
  return sum;
}
