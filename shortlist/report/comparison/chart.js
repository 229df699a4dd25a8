"use strict";
// Draws a chart of `chart_data.py` as SVG into an element, with a tooltip. `drawChart` is used by page.js, and by the page of `shortlist serve`.
const SVG = "http://www.w3.org/2000/svg";
const DASHES = { solid: "none", dash: "7 4", dot: "2 3", dashdot: "7 3 2 3" };
const SHAPES = {
  square: "M-4-4H4V4H-4Z", diamond: "M0-5L5 0L0 5L-5 0Z", "triangle-up": "M0-5L5 4H-5Z", "triangle-down": "M0 5L5-4H-5Z",
  cross: "M-1.7-5H1.7V-1.7H5V1.7H1.7V5H-1.7V1.7H-5V-1.7H-1.7Z", x: "M-5-3L-3-5L0-2L3-5L5-3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0Z",
  star: "M0-5.5L1.5-1.7L5.5-1.6L2.3.9L3.4 4.8L0 2.5L-3.4 4.8L-2.3.9L-5.5-1.6L-1.5-1.7Z", circle: "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0-4 0Z",
};
const MOST_MARKERS = 9;

const svg = (tag, facts, ...children) => {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(facts)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

// Bars of a repeated color are pale with a frame, as lines of a repeated color are dashed.
const barFill = (series, color) => (series.dash === "solid" ? { fill: color } : { fill: color, "fill-opacity": 0.3, stroke: color });

const swatch = (series, color) => {
  const picture = svg("svg", { width: 28, height: 12, viewBox: "-14 -6 28 12", "aria-hidden": "true" });
  if (series.kind === "bars") {
    picture.append(svg("rect", { x: -9, y: -5, width: 18, height: 10, rx: 2, ...barFill(series, color) }));
  } else if (series.kind === "line") {
    picture.append(svg("line", { x1: -13, x2: 13, y1: 0, y2: 0, stroke: color, "stroke-width": 2, "stroke-dasharray": DASHES[series.dash] }));
  }
  if (series.marked || series.kind === "points") picture.append(svg("path", { d: SHAPES[series.marker] || SHAPES.circle, fill: color }));
  return picture;
};

// The numbers of an axis in words, and where they stand.
const numberWords = (value, axis) => {
  if (axis.percent) return `${Number((100 * value).toPrecision(3))}%`;
  const size = Math.abs(value);
  return size >= 1000 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(3)));
};
const linearTicks = (low, high, most, whole) => {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
  if (whole) step = Math.max(1, Math.round(step));
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.max(0, Math.floor(high / step + 1e-9) - first + 1) }, (_, at) => (first + at) * step);
};
const logTicks = (low, high, most) => {
  for (const factors of [[1, 2, 5], [1]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      ticks.push(...factors.map((factor) => factor * 10 ** power));
    }
    const inside = ticks.filter((tick) => tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9));
    if (inside.length > 1 && inside.length <= most) return inside;
    if (factors.length === 1 && inside.length > 1) return inside.filter((_, at) => at % Math.ceil(inside.length / most) === 0);
  }
  return linearTicks(low, high, most, false).filter((tick) => tick > 0);
};

// From values to pixels: `at` places a value, `ticks` lists values and their words.
const scaleOf = (axis, values, { kind, from, to, most, zero, pad }) => {
  if (kind === "names") {
    const width = (to - from) / axis.names.length;
    return { at: (value) => from + (value + 0.5) * width, ticks: axis.names.map((name, at) => [at, name]) };
  }
  const known = values.filter((value) => value !== null && (kind !== "log" || value > 0));
  let [low, high] = axis.limits && kind === "linear" ? axis.limits : [Math.min(...known), Math.max(...known)];
  if (!known.length) [low, high] = kind === "log" ? [1, 10] : [0, 1];
  const log = kind === "log";
  if (!axis.limits || log) {
    if (zero && !log) { low = Math.min(0, low); high = Math.max(0, high); }
    if (low === high) {
      const half = (Math.abs(low) || 1) / 2;
      if (!(zero && low === 0)) low = log ? low / 2 : low - half;  // An axis from 0 stays so if all values are 0.
      high = log ? high * 2 : high + half;
    }
    const room = log ? (Math.log(high) - Math.log(low)) * 0.04 : (high - low) * 0.05;
    high = log ? high * Math.exp(room) : high + Math.max(room, pad);
    if (log) low *= Math.exp(-room);
    else if (!(zero && low === 0) || pad) low -= Math.max(pad ? 0 : room, pad);
  }
  const unit = log ? (value) => Math.log(value / low) / Math.log(high / low) : (value) => (value - low) / (high - low);
  const ticks = log ? logTicks(low, high, most) : linearTicks(low, high, most, axis.whole);
  return { at: (value) => from + (to - from) * unit(value), ticks: ticks.map((tick) => [tick, numberWords(tick, axis)]) };
};

// An upper bound for digits and most letters; percent signs are wide.
const textWidth = (words) => words.length * 7.6 + (words.endsWith("%") ? 5 : 0);

/* `chart` has series with their lists, axes `x` and `y`, and guides; `shades` maps "ink", "soft", "grid" and candidates' colors. */
const drawChart = (element, chart, { hidden, scale, shades }) => {
  const [width, height] = [element.clientWidth, element.clientHeight];
  const shown = chart.series.filter((series) => !hidden.has(series.group));
  const shade = (series) => (series.color === shades.inkCode ? shades.ink : series.color);
  const narrow = width < 520;
  const xKind = chart.x.scale;
  const yKind = scale || chart.y.scale;
  // All series count for the axes, so that hiding one does not move the others.
  const xs = chart.series.flatMap((series) => series.x).concat(chart.guides.flatMap(([, x]) => (x === null ? [] : [x])));
  const ys = chart.series.flatMap((series) => series.y.concat(series.high || []));
  const hasBars = chart.series.some((series) => series.kind === "bars");
  const positions = [...new Set(chart.series.filter((series) => series.kind === "bars").flatMap((series) => series.x))].sort((a, b) => a - b);
  const step = positions.slice(1).reduce((least, x, at) => Math.min(least, x - positions[at]), Infinity);
  const barStep = Number.isFinite(step) ? step : 1;
  const y = scaleOf(chart.y, ys, { kind: yKind, from: height - 46, to: 22, most: narrow ? 5 : 7, zero: true, pad: 0 });
  const left = 30 + Math.max(...y.ticks.map(([, words]) => textWidth(words)), 8);
  const x = scaleOf(chart.x, xs, { kind: xKind, from: left, to: width - 10, most: narrow ? 6 : 12, zero: false, pad: hasBars ? barStep * 0.55 : 0 });
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const text = (words, facts) => picture.append(svg("text", { fill: shades.soft, "font-size": narrow ? 11 : 12.5, ...facts }, words));
  const bottom = height - 46;

  for (const [value, words] of y.ticks) {
    picture.append(svg("line", { x1: left, x2: width - 10, y1: y.at(value), y2: y.at(value), stroke: shades.grid }));
    text(words, { x: left - 7, y: y.at(value) + 4, "text-anchor": "end" });
  }
  picture.append(svg("line", { x1: left, x2: width - 10, y1: bottom, y2: bottom, stroke: shades.soft }));
  let edge = -Infinity;
  for (const [value, words] of x.ticks) {
    const half = textWidth(words) / 2;
    if (x.at(value) - half < edge || x.at(value) + half > width) continue;  // Words neither overlap nor leave the chart.
    edge = x.at(value) + half + 8;
    picture.append(svg("line", { x1: x.at(value), x2: x.at(value), y1: bottom, y2: bottom + 4, stroke: shades.soft }));
    text(words, { x: x.at(value), y: bottom + 18, "text-anchor": "middle" });
  }
  text(chart.x.label || "", { x: (left + width - 10) / 2, y: height - 7, "text-anchor": "middle" });
  text(chart.y.label || "", { transform: `translate(12 ${(bottom + 22) / 2}) rotate(-90)`, "text-anchor": "middle" });
  for (const [words, at] of chart.guides) {
    const line = { stroke: shades.soft, "stroke-width": 1.5, "stroke-dasharray": "2 3" };
    if (at === null) {
      picture.append(svg("line", { x1: x.at(0), y1: y.at(0), x2: x.at(1), y2: y.at(1), ...line }));
    } else {
      picture.append(svg("line", { x1: x.at(at), x2: x.at(at), y1: 22, y2: bottom, ...line }));
      const place = Math.min(Math.max(x.at(at), left + textWidth(words) / 2), width - 10 - textWidth(words) / 2);
      text(words, { x: place, y: 14, "text-anchor": "middle" });
    }
  }

  const points = [];  // What the tooltip can find.
  const place = (series, at) => [x.at(series.x[at]), y.at(series.y[at])];
  const drawable = (series, at) => series.y[at] !== null && (yKind !== "log" || series.y[at] > 0) && (xKind !== "log" || series.x[at] > 0);
  const bars = shown.filter((series) => series.kind === "bars");
  const draw = {
    band(series) {
      const known = series.x.map((_, at) => at).filter((at) => drawable(series, at) && series.high[at] !== null);
      const path = [...known.map((at) => place(series, at)), ...known.reverse().map((at) => [x.at(series.x[at]), y.at(series.high[at])])];
      picture.append(svg("path", { d: `M${path.map((pair) => pair.map((one) => one.toFixed(1)).join(" ")).join("L")}Z`, fill: shade(series), opacity: 0.16 }));
    },
    bars(series) {
      const unit = Math.abs(x.at(1) - x.at(0)) * (xKind === "names" ? 1 : barStep) * 0.84;
      const own = unit / bars.length;
      const base = yKind === "log" ? bottom : y.at(0);
      series.x.forEach((_, at) => {
        if (!drawable(series, at)) return;
        const [middle, top] = place(series, at);
        const start = middle - unit / 2 + own * bars.indexOf(series);
        picture.append(svg("rect", { x: start, y: top, width: Math.max(own * 0.94, 0.5), height: Math.max(base - top, 0), ...barFill(series, shade(series)) }));
        points.push({ series, at, px: start + own / 2, py: top, bar: true });
      });
    },
    line(series) {
      let path = "";
      let pen = "M";
      const known = [];
      series.x.forEach((_, at) => {
        if (!drawable(series, at)) { pen = "M"; return; }
        const [px, py] = place(series, at);
        path += `${pen}${px.toFixed(1)} ${py.toFixed(1)}`;
        pen = "L";
        known.push({ series, at, px, py });
      });
      picture.append(svg("path", { d: path, fill: "none", stroke: shade(series), "stroke-width": 2, "stroke-dasharray": DASHES[series.dash], opacity: series.faint ? 0.45 : 1 }));
      points.push(...known);
      const every = Math.ceil(known.length / MOST_MARKERS);
      if (series.marked) known.filter((_, at) => at % every === 0).forEach(({ px, py }) => marker(series, px, py, 8));
    },
    points(series) {
      series.x.forEach((_, at) => {
        if (!drawable(series, at)) return;
        const [px, py] = place(series, at);
        marker(series, px, py, series.sizes ? series.sizes[at] : 11);
        points.push({ series, at, px, py });
      });
    },
  };
  const marker = (series, px, py, size) => picture.append(svg("path", {
    d: SHAPES[series.marker] || SHAPES.circle, transform: `translate(${px.toFixed(1)} ${py.toFixed(1)}) scale(${(size / 8).toFixed(2)})`,
    fill: shade(series), opacity: series.faint && series.kind === "points" ? 0.65 : 1,
  }));
  for (const kind of ["band", "bars", "line", "points"]) shown.filter((series) => series.kind === kind).forEach(draw[kind]);
  element.replaceChildren(picture);
  addTooltip(element, points, chart, { width, height, shade });
};

// The points nearest to the pointer, of the series drawn last; several labels often stand at one place.
const addTooltip = (element, points, chart, { width, height, shade }) => {
  const box = document.createElement("div");
  box.className = "tooltip";
  box.hidden = true;
  element.append(box);
  const words = ({ series, at }) => {
    if (series.notes) return series.notes[at];
    const name = chart.x.names ? chart.x.names[series.x[at]] : chart.x.words ? chart.x.words[at] : numberWords(series.x[at], chart.x);
    return `${name}: ${numberWords(series.y[at], chart.y)} ${chart.y.label}`;
  };
  element.onpointermove = element.onpointerdown = (event) => {
    const ground = element.getBoundingClientRect();
    const [mx, my] = [event.clientX - ground.left, event.clientY - ground.top];
    const distance = (point) => (point.bar ? Math.abs(point.px - mx) : Math.hypot(point.px - mx, point.py - my));
    const best = points.reduce((found, point) => (found && distance(found) < distance(point) ? found : point), null);
    box.hidden = !best || distance(best) > 40;
    if (box.hidden) return;
    const same = points.filter((point) => point.series === best.series && Math.hypot(point.px - best.px, point.py - best.py) < 2);
    const lines = same.slice(0, 6).map(words);
    if (same.length > 6) lines.push(`and ${same.length - 6} more here`);
    const title = document.createElement("strong");
    title.append(swatch(best.series, shade(best.series)), best.series.name);
    box.replaceChildren(title, ...lines.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
    box.style.left = `${Math.min(Math.max(best.px - box.offsetWidth / 2, 0), Math.max(width - box.offsetWidth, 0))}px`;
    box.style.top = `${best.py > box.offsetHeight + 12 ? best.py - box.offsetHeight - 10 : Math.min(best.py + 12, height - box.offsetHeight)}px`;
  };
  element.onpointerleave = () => { box.hidden = true; };
};
