// The chart of the usage page: bars by hour, day or week, stacked by group, or lines, of the measure that is chosen. Its data are in the page
// (dashboard/parts/charts.py), its colours in the style sheet. The section stays hidden without JavaScript: the tables
// below hold the same figures.
"use strict";

(() => {
  const section = document.querySelector(".usage-charts");
  const source = document.getElementById("usage-data");
  if (!section || !source || typeof Chart === "undefined") return;

  const data = JSON.parse(source.textContent);
  const canvas = section.querySelector("canvas");
  const legend = section.querySelector(".legend");
  const swatch = section.querySelector("template");
  const note = section.querySelector(".note");
  const isDark = matchMedia("(prefers-color-scheme: dark)");
  const LONG = 72; // characters, as in dashboard/templatetags/names.py

  const chosen = () => section.querySelector("input[name=measure]:checked").value;
  const measured = () => data.measures.find((measure) => measure.name === chosen());
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
  const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const written = (value) => (Math.abs(value) >= 100 ? whole : fine).format(value);
  const ink = (name) => getComputedStyle(section).getPropertyValue(name).trim();
  const withUnit = (value) => `${written(value)} ${measured().unit}`.trim();

  // Sums are bars that add up; percentiles and rates are lines, with gaps where there are no requests.
  function datasets() {
    const addsUp = measured().adds_up;
    return measured().groups.map((label, number) => {
      const colour = ink(`--series-${number + 1}`);
      const shape = addsUp
        ? { type: "bar", borderColor: ink("--card"), borderWidth: { top: 1 }, borderSkipped: false, maxBarThickness: 48 }
        : { type: "line", borderColor: colour, borderWidth: 2, pointRadius: 3 };
      return { label, data: measured().values[number], backgroundColor: colour, ...shape };
    });
  }

  function said(item) {
    return `${item.dataset.label}: ${item.raw === null ? "unknown" : withUnit(item.raw)}`;
  }

  const isShown = (item) => (measured().adds_up ? item.raw !== 0 : item.raw !== null);

  function total(items) {
    if (items.length < 2 || !measured().adds_up) return "";
    return `Total: ${withUnit(items.reduce((sum, item) => sum + (item.raw ?? 0), 0))}`;
  }

  function paint() {
    for (const axis of Object.values(chart.options.scales)) {
      axis.ticks.color = ink("--soft");
      axis.border.color = ink("--line");
    }
    chart.options.scales.y.grid.color = ink("--line");
    chart.options.scales.y.title.color = ink("--soft");
    Object.assign(chart.options.plugins.tooltip, {
      backgroundColor: ink("--ink"),
      titleColor: ink("--card"),
      bodyColor: ink("--card"),
      footerColor: ink("--card"),
      multiKeyBackground: ink("--card"),
    });
  }

  function show() {
    const measure = measured();
    chart.data.datasets = datasets();
    legend.replaceChildren(...measure.groups.map((label) => {
      const part = document.createElement("li");
      const name = document.createElement("bdi");
      name.textContent = label;
      if (label.length > LONG) Object.assign(name, { className: "clamp", title: label });
      part.append(swatch.content.cloneNode(true), name);
      return part;
    }));
    chart.options.scales.x.stacked = chart.options.scales.y.stacked = measure.adds_up;
    chart.options.scales.y.title.text = measure.unit || measure.label;
    canvas.setAttribute("aria-label", measure.summary);
    note.textContent = measure.note;
    chart.update();
  }

  section.hidden = false; // before it is drawn: what is hidden has no width
  Chart.defaults.font.family = getComputedStyle(section).fontFamily;
  const chart = new Chart(canvas, {
    type: "bar",
    data: { labels: data.slots, datasets: datasets() },
    options: {
      animation: false, // nothing here is clearer for moving
      maintainAspectRatio: false,
      interaction: { mode: "index", intersect: false },
      scales: {
        x: { stacked: true, grid: { display: false }, border: {}, ticks: { maxRotation: 0, autoSkipPadding: 16 } },
        y: {
          stacked: true,
          beginAtZero: true,
          grid: {},
          border: { display: false },
          title: { display: true },
          ticks: { maxTicksLimit: 6, callback: (value) => (value >= 10_000 ? short : fine).format(value) },
        },
      },
      plugins: {
        legend: { display: false },
        tooltip: { padding: 10, boxPadding: 4, filter: isShown, callbacks: { label: said, footer: total } },
      },
    },
  });

  const redraw = () => { paint(); show(); };
  redraw();
  section.addEventListener("change", show);
  isDark.addEventListener("change", redraw);
})();
