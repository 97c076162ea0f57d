// Bars and lines, as SVG and plain elements.

import { h, number, numbersBelow, svg, visible } from "regard/dom.js";
import { ticks, ticksWithin } from "regard/ticks.js";
import { swatch } from "regard/tokens.js";

const FEW = 30; // points of a curve, up to which each has a dot

/* Bars, one for each name. `marks`: for each, the {stack, position} to highlight, or null. `most`: the value of a full bar.
   `signed`: whether bars start in the middle. `plain`: names are words of ours, not pieces of a text. */
export function bars(page, { label, names, values, unit = "", marks = [], pick = null, format = number, most = null, plain = false, signed = null }) {
  most ??= Math.max(1e-9, ...values.filter(Number.isFinite).map(Math.abs));
  signed ??= values.some((value) => value < 0);
  const lines = names.map((name, i) => {
    const share = `${(100 * Math.abs(values[i] ?? 0)) / most / (signed ? 2 : 1)}%`;
    const bar = h("span", { class: values[i] < 0 ? "bar negative" : "bar", style: { width: share } });
    const start = signed ? (values[i] < 0 ? { right: "50%" } : { left: "50%" }) : { left: "0" };
    for (const [side, value] of Object.entries(start)) bar.style.setProperty(side, value);
    const line = h(
      pick ? "button" : "div",
      { class: "bar-line", type: pick ? "button" : null, onclick: pick ? () => pick(i) : null },
      h("span", { class: "bar-name", title: plain ? name : visible(name) }, plain ? name : [swatch(name), visible(name)]),
      h("span", { class: "bar-room" }, bar),
      h("span", { class: "bar-value" }, format(values[i])),
    );
    return marks[i] ? page.highlight.register(line, marks[i].stack, marks[i].position) : line;
  });
  return h("div", { class: "bars", role: "group", "aria-label": unit ? `${label} (${unit})` : label }, lines);
}

/* Curves. `series`: [{name, values, x?}], each over its own x or the shared one; null breaks a line. `range`: of y, by
   default that of the values. */
export function lines({ label, x = [], series, xLabel, yLabel, width = 520, height = 220, range = null }) {
  const left = 62, right = 24, top = 12, bottom = 36;
  const all = series.flatMap(({ values }) => values).filter((value) => value !== null && Number.isFinite(value));
  const xs = series.flatMap((curve) => curve.x ?? x).filter(Number.isFinite);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  const yTicks = ticks(...(range ?? [Math.min(...all), Math.max(...all)]), Math.floor(height / 50));
  const xTicks = ticksWithin(x0, x1, 5, { whole: xs.every(Number.isInteger) });
  const [y0, y1] = [yTicks[0].value, yTicks.at(-1).value];
  const across = (value) => left + ((value - x0) / (x1 - x0 || 1)) * (width - left - right);
  const up = (value) => height - bottom - ((value - y0) / (y1 - y0 || 1)) * (height - top - bottom);
  const middle = (height - bottom + top) / 2;
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": label },
    yTicks.map(({ value, name }) => [
      svg("line", { x1: left, x2: width - right, y1: up(value), y2: up(value), class: "rule" }),
      svg("text", { x: left - 6, y: up(value) + 4, "text-anchor": "end" }, name),
    ]),
    xTicks.map(({ value, name }) => svg("text", { x: across(value), y: height - 18, "text-anchor": "middle" }, name)),
    svg("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, xLabel),
    svg("text", { x: 12, y: middle, transform: `rotate(-90 12 ${middle})`, "text-anchor": "middle" }, yLabel),
    series.map(path),
  );
  return h(
    "figure",
    { class: "chart-figure", style: { width: `${width}px` } },
    picture,
    h("figcaption", {}, series.map(({ name }, i) => h("span", { class: `key series-${i % 6}` }, name))),
    numbersBelow(`Numbers: ${label}`, [xLabel, ...series.map(({ name }) => name)], () =>
      [...new Set(xs)].sort((a, b) => a - b).map((value) => [String(value), ...series.map((curve) => number(valueAt(curve, value), 4))]),
    ),
  );

  function valueAt(curve, position) {
    return curve.values[(curve.x ?? x).indexOf(position)];
  }

  function path(curve, index) {
    const xs = curve.x ?? x;
    let drawn = "";
    let pen = "M";
    curve.values.forEach((value, i) => {
      if (value === null || !Number.isFinite(value)) pen = "M";
      else {
        drawn += `${pen}${across(xs[i]).toFixed(1)} ${up(value).toFixed(1)}`;
        pen = "L";
      }
    });
    const dots = curve.values.length > FEW ? [] : curve.values.map((value, i) => dot(xs[i], value, index));
    return [svg("path", { d: drawn, class: `curve series-${index % 6}` }), dots];
  }

  function dot(at, value, index) {
    if (value === null || !Number.isFinite(value)) return null;
    return svg("circle", { cx: across(at), cy: up(value), r: 2.5, class: `dot series-${index % 6}` });
  }
}
