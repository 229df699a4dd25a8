"use strict";
// Draws the charts and updates what depends on K. All content comes from the element "charts".
(() => {
  const content = JSON.parse(document.getElementById("charts").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const panels = [];

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const shades = () => ({ inkCode: content.ink, ink: color("--ink"), soft: color("--soft"), grid: color("--grid") });

  const list = (number) => (number === undefined ? undefined : content.lists[number]);
  const chartOf = (number) => {
    const chart = content.charts[number];
    const series = chart.series.map((at) => {
      const one = content.series[at];
      return { ...content.looks[one.look], x: list(one.x), y: list(one.y), high: list(one.high), sizes: list(one.sizes), notes: list(one.notes) };
    });
    return { ...chart, series, x: content.axes[chart.x], y: content.axes[chart.y] };
  };

  const drawLegend = (panel, chart) => {
    const ink = color("--ink");
    const entries = chart.series.filter((series) => series.legend);
    panel.legend.replaceChildren(...entries.map((series, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", String(!panel.hidden.has(series.group)));
      const name = Object.assign(document.createElement("bdi"), { textContent: series.name });
      button.title = `show or hide ${series.name}`;
      button.append(swatch(series, series.color === content.ink ? ink : series.color), name);
      button.addEventListener("click", () => {
        if (!panel.hidden.delete(series.group)) panel.hidden.add(series.group);
        draw(panel);
        panel.legend.querySelectorAll("button")[place].focus();
      });
      const item = document.createElement("li");
      item.append(button);
      return item;
    }));
  };

  const draw = (panel) => {
    const numbers = panel.charts[panel.choice];
    const chart = chartOf(numbers[numbers.length > 1 ? panel.job.kIndex : 0]);
    panel.note.textContent = chart.note;
    drawLegend(panel, chart);
    drawChart(panel.plot, chart, { hidden: panel.hidden, scale: panel.scale, shades: shades() });
    panel.drawn = true;
  };

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const panel = panels.find((one) => one.element === entry.target);
      if (entry.isIntersecting && !panel.drawn) draw(panel);
    }
  }, { rootMargin: "600px" });
  const resized = new ResizeObserver((entries) => {
    for (const entry of entries) {
      const panel = panels.find((one) => one.plot === entry.target);
      if (panel.drawn && panel.width !== entry.target.clientWidth) draw(panel);
      panel.width = entry.target.clientWidth;
    }
  });

  const setK = (job, kIndex) => {
    job.kIndex = kIndex;
    const words = job.names[kIndex];
    if (job.input) {
      job.input.value = kIndex;
      job.input.setAttribute("aria-valuetext", `K = ${words}`);
      job.element.querySelector(".slider output").textContent = `K = ${words}`;
    }
    for (const place of [job.element, job.card]) {
      for (const element of place.querySelectorAll(".k-now")) element.textContent = words;
      for (const element of place.querySelectorAll("[data-by-k]")) {
        element.textContent = JSON.parse(element.dataset.byK)[kIndex];
        element.hidden = element.textContent === "";
      }
    }
    for (const panel of panels) {
      const dependsOnK = panel.charts.some((numbers) => numbers.length > 1);
      if (panel.job === job && panel.drawn && dependsOnK) draw(panel);
    }
    if (job.examples) job.examples.setK(kIndex);
    if (job.labelTable) job.labelTable.setK(kIndex);
  };

  const addPanel = (job, name, charts) => {
    const box = document.getElementById(`${job.element.id}-${name}`);
    const panel = {
      job, element: box, charts, choice: 0, scale: "", hidden: new Set(), drawn: false, width: 0,
      plot: box.querySelector(".chart"), legend: box.querySelector(".legend"), note: box.querySelector(".chart-note") || box.querySelector(".note"),
    };
    for (const control of box.querySelectorAll("[data-choice]")) {
      control.addEventListener("change", () => { panel.choice = Number(control.value); draw(panel); });
    }
    for (const control of box.querySelectorAll("[data-scale]")) {
      control.addEventListener("change", () => { panel.scale = control.value; draw(panel); });
    }
    panels.push(panel);
    watcher.observe(box);
    resized.observe(panel.plot);
  };

  // A reloaded page may restore slider and buttons that its charts do not show.
  for (const form of document.querySelectorAll("form")) form.reset();

  const jobs = content.jobs.map((found, number) => {
    const id = `job-${number + 1}`;
    const element = document.getElementById(id);
    const job = { ...found, element, card: document.querySelector(`[data-job=${id}]`), kIndex: found.start, input: element.querySelector(".slider input") };
    for (const [name, panel] of Object.entries(found.panels)) addPanel(job, name, panel.charts);
    const examples = document.getElementById(`${id}-examples`);
    if (examples) job.examples = exampleList(examples, job.ks);
    const section = document.getElementById(`${id}-labels`);
    if (section && job.labels) {
      job.labelTable = labelTable(section, job.labels, content.lists, {
        kIndex: job.kIndex,
        onExamples: (label) => job.examples.showLabel(label),
        countExamples: (label) => (job.examples ? job.examples.countOf(label) : 0),
      });
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
  jobs.forEach((job) => setK(job, job.start));
  readAddress();
  addEventListener("hashchange", readAddress);

  const redraw = () => panels.filter((panel) => panel.drawn).forEach(draw);
  dark.addEventListener("change", redraw);
  addEventListener("beforeprint", () => { panels.forEach(draw); });
  addEventListener("afterprint", redraw);

  for (const button of document.querySelectorAll(".sortable thead button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const body = head.closest("table").tBodies[0];
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => {
        const { dataset, textContent } = row.cells[head.cellIndex];
        return dataset.value === "" ? NaN : Number(dataset.value ?? textContent);
      };
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

  // A table that is wider than the page says so until its end is reached.
  for (const frame of document.querySelectorAll(".scroll-frame")) {
    const scroll = frame.querySelector(".scroll");
    const update = () => {
      const rest = scroll.scrollWidth - scroll.clientWidth - scroll.scrollLeft;
      frame.classList.toggle("more-right", rest > 4);
      frame.querySelector(".scroll-hint").hidden = scroll.scrollWidth - scroll.clientWidth <= 4;
    };
    scroll.addEventListener("scroll", update, { passive: true });
    new ResizeObserver(update).observe(scroll);
    new ResizeObserver(update).observe(scroll.firstElementChild);
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
