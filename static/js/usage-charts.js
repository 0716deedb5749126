// The chart of the usage page: bars by day, stacked by group, of the measure that is chosen. Its data are in the page
// (billing/usage_chart.py), its colours in the style sheet. The section stays hidden without JavaScript: the tables
// below hold the same figures.
"use strict";

(() => {
  const section = document.querySelector(".usage-charts");
  const source = document.getElementById("usage-data");
  if (!section || !source || typeof Chart === "undefined") return;

  const data = JSON.parse(source.textContent);
  const canvas = section.querySelector("canvas");
  const note = section.querySelector(".note");
  const isDark = matchMedia("(prefers-color-scheme: dark)");
  const MANY_DAYS = 100; // more bars than this leave no room for lines between their parts

  const chosen = () => section.querySelector("input[name=measure]:checked").value;
  const measured = () => data.measures.find((measure) => measure.name === chosen());
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
  const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const written = (value) => (Math.abs(value) >= 100 ? whole : fine).format(value);
  const withUnit = (value) => `${written(value)} ${measured().unit}`.trim();

  function datasets() {
    return data.groups.map((label, number) => ({
      label,
      data: measured().values[number],
      borderSkipped: false,
      borderWidth: data.days.length > MANY_DAYS ? 0 : { top: 1 },
      maxBarThickness: 48,
    }));
  }

  function said(item) {
    return `${item.dataset.label}: ${item.raw === null ? "unknown" : withUnit(item.raw)}`;
  }

  function total(items) {
    if (items.length < 2) return "";
    return `In all: ${withUnit(items.reduce((sum, item) => sum + (item.raw ?? 0), 0))}`;
  }

  function paint() {
    const colour = (name) => getComputedStyle(section).getPropertyValue(name).trim();
    chart.data.datasets.forEach((dataset, number) => {
      dataset.backgroundColor = colour(`--series-${number + 1}`);
      dataset.borderColor = colour("--card");
    });
    for (const axis of Object.values(chart.options.scales)) {
      axis.ticks.color = colour("--soft");
      axis.border.color = colour("--line");
    }
    chart.options.scales.y.grid.color = colour("--line");
    chart.options.scales.y.title.color = colour("--soft");
    Object.assign(chart.options.plugins.tooltip, {
      backgroundColor: colour("--ink"),
      titleColor: colour("--card"),
      bodyColor: colour("--card"),
      footerColor: colour("--card"),
      multiKeyBackground: colour("--card"),
    });
  }

  function show() {
    const measure = measured();
    chart.data.datasets.forEach((dataset, number) => { dataset.data = measure.values[number]; });
    chart.options.scales.y.title.text = measure.unit || measure.label;
    canvas.setAttribute("aria-label", measure.summary);
    note.textContent = measure.note;
    chart.update();
  }

  section.hidden = false; // before it is drawn: what is hidden has no width
  Chart.defaults.font.family = getComputedStyle(section).fontFamily;
  const chart = new Chart(canvas, {
    type: "bar",
    data: { labels: data.days, datasets: datasets() },
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
        tooltip: { padding: 10, boxPadding: 4, filter: (item) => item.raw !== 0, callbacks: { label: said, footer: total } },
      },
    },
  });

  const redraw = () => { paint(); show(); };
  redraw();
  section.addEventListener("change", show);
  isDark.addEventListener("change", redraw);
})();
