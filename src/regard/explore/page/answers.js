// Which of the answers the views look at: one for all of them, so that it stays when another view is opened.

export function chosenAnswer(page) {
  const { answers, first } = page.look;
  return Math.max(0, Math.min(page.state.get("answer") ?? first, answers.length - 1));
}
