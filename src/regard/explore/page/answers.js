// The chosen answer, which all views share: it stays when another view is opened.

export function chosenAnswer(page) {
  const { answers, first } = page.overview;
  return Math.max(0, Math.min(page.state.get("answer") ?? first, answers.length - 1));
}
