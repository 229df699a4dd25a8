"use strict";
// Draws the charts and updates what depends on K. All content comes from the element "charts".
(() => {
  const content = JSON.parse(document.getElementById("charts").textContent);
  const INK = content.ink;
  const touch = matchMedia("(pointer: coarse)").matches;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const panels = [];

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Whatever is drawn in ink follows the color scheme of the page.
  const inked = (value, ink) => {
    if (value === INK) return ink;
    if (Array.isArray(value)) return value;
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, inked(inner, ink)]));
  };

  // Ticks at 1, 2 and 5 where they fit; fewer on a narrow chart of many decades, any within one decade.
  const setLogTicks = (axis, chart, side, narrow) => {
    const values = chart.data.flatMap((number) => content.traces[number][side]).filter((value) => value > 0);
    if (values.length === 0) return;
    const least = values.reduce((a, b) => Math.min(a, b));
    const most = values.reduce((a, b) => Math.max(a, b));
    const decades = Math.log10(most / least);
    if (decades < 1 && side === "x") axis.dtick = `L${Math.max(1, Math.ceil((most - least) / 8))}`;
    if (decades >= 1) axis.dtick = decades > (narrow || side === "y" ? 2 : 4) ? 1 : "D2";
  };

  const layoutOf = (chart, panel) => {
    const layout = structuredClone(content.layouts[chart.layout]);
    const [ink, soft, grid, ground] = ["--ink", "--soft", "--grid", "--ground"].map(color);
    const narrow = panel.plot.clientWidth < 520;
    for (const side of [layout.xaxis, layout.yaxis]) {
      Object.assign(side, { gridcolor: grid, linecolor: soft, tickcolor: soft, zeroline: false, automargin: true, fixedrange: touch });
      side.title.font = { size: narrow ? 12 : 13, color: soft };
      side.title.standoff = 8;
    }
    layout.xaxis.showgrid = false;
    layout.xaxis.showline = true;
    if (!layout.xaxis.tickvals) layout.xaxis.nticks = narrow ? 6 : 12;
    layout.yaxis.nticks = 7;
    if (panel.scale && panel.scale !== (layout.yaxis.type || "linear")) {
      layout.yaxis.type = panel.scale;
      delete layout.yaxis.range;
    }
    if (layout.xaxis.type === "log") setLogTicks(layout.xaxis, chart, "x", narrow);
    if (layout.yaxis.type === "log") {
      layout.yaxis.rangemode = "normal";
      setLogTicks(layout.yaxis, chart, "y", narrow);
    }
    for (const shape of layout.shapes || []) shape.line.color = soft;
    for (const note of layout.annotations || []) {
      note.font = { size: 12, color: soft };
      if (layout.xaxis.type === "log") note.x = Math.log10(note.x);
    }
    return Object.assign(layout, {
      margin: { l: 12, r: 12, t: 26, b: 12 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 11 : 12.5, color: soft },
      hoverlabel: { bgcolor: ground, bordercolor: soft, font: { color: ink, size: 13 }, namelength: 40 },
      hovermode: "closest",
      dragmode: touch ? false : "zoom",
      showlegend: false,
      bargap: 0.16,
      bargroupgap: 0.06,
      autosize: true,
      uirevision: `${panel.choice} ${panel.scale}`,
    });
  };

  const SVG = "http://www.w3.org/2000/svg";
  const SHAPES = {
    square: "M-4-4H4V4H-4Z", diamond: "M0-5L5 0L0 5L-5 0Z", "triangle-up": "M0-5L5 4H-5Z", "triangle-down": "M0 5L5-4H-5Z",
    cross: "M-1.7-5H1.7V-1.7H5V1.7H1.7V5H-1.7V1.7H-5V-1.7H-1.7Z", x: "M-5-3L-3-5L0-2L3-5L5-3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0Z",
    star: "M0-5.5L1.5-1.7L5.5-1.6L2.3.9L3.4 4.8L0 2.5L-3.4 4.8L-2.3.9L-5.5-1.6L-1.5-1.7Z", circle: "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0-4 0Z",
  };
  const swatch = (trace, ink) => {
    const picture = document.createElementNS(SVG, "svg");
    for (const [key, value] of Object.entries({ width: 28, height: 12, viewBox: "-14 -6 28 12", "aria-hidden": "true" })) picture.setAttribute(key, value);
    const add = (tag, facts) => {
      const part = document.createElementNS(SVG, tag);
      for (const [key, value] of Object.entries(facts)) part.setAttribute(key, value);
      picture.append(part);
    };
    const shade = trace.marker.color === INK ? ink : trace.marker.color;
    const dashes = { dash: "7 4", dot: "2 3", dashdot: "7 3 2 3" }[trace.line && trace.line.dash] || "none";
    if (trace.type === "bar") {
      add("rect", { x: -9, y: -5, width: 18, height: 10, rx: 2, fill: shade });
      if (trace.marker.pattern) add("path", { d: "M-7 5L-1-5M-1 5L5-5", stroke: color("--ground"), "stroke-width": 1.5 });
    }
    else add("line", { x1: -13, x2: 13, y1: 0, y2: 0, stroke: shade, "stroke-width": 2, "stroke-dasharray": dashes });
    if ((trace.mode || "").includes("markers")) add("path", { d: SHAPES[trace.marker.symbol] || SHAPES.circle, fill: shade });
    return picture;
  };

  const plain = document.createElement("textarea");
  const unescaped = (text) => { plain.innerHTML = text; return plain.value; };

  const drawLegend = (panel, traces) => {
    const ink = color("--ink");
    const entries = traces.filter((trace) => trace.showlegend);
    panel.legend.replaceChildren(...entries.map((trace, place) => {
      const item = document.createElement("li");
      const button = document.createElement("button");
      const group = trace.legendgroup;
      button.type = "button";
      button.setAttribute("aria-pressed", String(!panel.hidden.has(group)));
      const name = document.createElement("bdi");
      name.textContent = unescaped(trace.name);
      button.title = `show or hide ${name.textContent}`;
      button.append(swatch(trace, ink), name);
      button.addEventListener("click", () => {
        if (!panel.hidden.delete(group)) panel.hidden.add(group);
        draw(panel);
        panel.legend.querySelectorAll("button")[place].focus();
      });
      item.append(button);
      return item;
    }));
  };

  const draw = (panel) => {
    const numbers = panel.charts[panel.choice];
    const chart = content.charts[numbers[numbers.length > 1 ? panel.job.kIndex : 0]];
    const traces = chart.data.map((number) => content.traces[number]);
    const ink = color("--ink");
    const data = traces.map((trace) => ({ ...inked(trace, ink), visible: !panel.hidden.has(trace.legendgroup) }));
    Plotly.react(panel.plot, data, layoutOf(chart, panel), { responsive: true, displayModeBar: false, doubleClick: "reset" });
    panel.note.textContent = chart.note;
    drawLegend(panel, traces);
    panel.drawn = true;
  };

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      const panel = panels.find((one) => one.element === entry.target);
      if (!panel.drawn) draw(panel);
      watcher.unobserve(entry.target);
    }
  }, { rootMargin: "1200px" });

  const updateAnswers = (job) => {
    for (const answer of job.element.querySelectorAll(".answer")) {
      const size = JSON.parse(answer.dataset.sizes)[job.kIndex];
      const labels = [...answer.querySelectorAll(".labels > li")];
      labels.forEach((label, rank) => { label.hidden = rank >= size; });
      answer.querySelector(".size").textContent = size === 0 ? "no label" : size === 1 ? "1 label" : `${size} labels`;
      const more = answer.querySelector(".more");
      more.hidden = size <= labels.length;
      more.textContent = `and ${size - labels.length} more that are not listed`;
      let missed = 0;
      for (const chip of answer.querySelectorAll(".missed")) {
        const rank = Number(chip.dataset.rank);
        // Labels beyond the listed ones are not known to be missed.
        chip.hidden = rank >= 0 ? rank < size : size > labels.length;
        if (!chip.hidden) missed += 1;
      }
      answer.querySelector(".misses").hidden = missed === 0;
    }
  };

  const setK = (job, kIndex) => {
    job.kIndex = kIndex;
    const words = job.names[kIndex];
    if (job.input) {
      job.input.value = kIndex;
      job.input.setAttribute("aria-valuetext", `K = ${words}`);
      job.element.querySelector(".slider output").textContent = `K = ${words}`;
    }
    for (const element of job.element.querySelectorAll(".k-now")) element.textContent = words;
    for (const panel of panels) {
      const dependsOnK = panel.charts.some((numbers) => numbers.length > 1);
      if (panel.job === job && panel.drawn && dependsOnK) draw(panel);
    }
    updateAnswers(job);
  };

  const jobs = content.jobs.map((found, number) => {
    const element = document.getElementById(`job-${number + 1}`);
    const job = { ...found, element, kIndex: found.start, input: element.querySelector(".slider input") };
    for (const [name, panel] of Object.entries(found.panels)) {
      const box = document.getElementById(`job-${number + 1}-${name}`);
      const made = {
        job, element: box, charts: panel.charts, choice: 0, scale: "", hidden: new Set(), drawn: false,
        plot: box.querySelector(".chart"), legend: box.querySelector(".legend"), note: box.querySelector(".chart-note") || box.querySelector(".note"),
      };
      for (const control of box.querySelectorAll("[data-choice]")) {
        control.addEventListener("change", () => { made.choice = Number(control.value); draw(made); });
      }
      for (const control of box.querySelectorAll("[data-scale]")) {
        control.addEventListener("change", () => { made.scale = control.value; draw(made); });
      }
      panels.push(made);
      watcher.observe(box);
    }
    return job;
  });

  const writeAddress = () => {
    const ks = jobs.map((job) => job.names[job.kIndex]).join(",");
    try { history.replaceState(null, "", `#k=${ks}`); } catch { /* Some viewers do not allow it. */ }
  };
  const readAddress = () => {
    const found = /[#&]k=([0-9.,]+)/.exec(location.hash);
    if (!found) return;
    const ks = found[1].split(",").map(Number);
    jobs.forEach((job, number) => {
      const k = ks[Math.min(number, ks.length - 1)];
      const near = job.ks.map((one) => Math.abs(one - k));
      setK(job, near.indexOf(Math.min(...near)));
    });
  };
  for (const job of jobs) {
    if (job.input) job.input.addEventListener("input", () => { setK(job, Number(job.input.value)); writeAddress(); });
  }
  // A reloaded page may restore slider and buttons that its charts do not show.
  for (const form of document.querySelectorAll("form")) form.reset();
  jobs.forEach((job) => setK(job, job.start));
  readAddress();
  addEventListener("hashchange", readAddress);

  const redraw = () => panels.filter((panel) => panel.drawn).forEach(draw);
  dark.addEventListener("change", redraw);
  addEventListener("beforeprint", () => { panels.forEach(draw); });
  addEventListener("afterprint", redraw);

  for (const button of document.querySelectorAll("thead button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const body = head.closest("table").tBodies[0];
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => (row.cells[head.cellIndex].dataset.value === "" ? NaN : Number(row.cells[head.cellIndex].dataset.value));
      const rows = [...body.rows].filter((row) => !row.classList.contains("optimum"));
      const last = [...body.rows].filter((row) => row.classList.contains("optimum"));
      rows.sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
        return up ? x - y : y - x;
      });
      body.append(...rows, ...last);
    });
  }

  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
})();
