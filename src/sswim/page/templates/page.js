"use strict";
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const drawing = {}, latest = {};
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  // Charts. Colours are names in the style sheet, so that charts follow the reader's choice of dark or light.
  function colored(value, key) {
    if (key === "values" || key === "datasets") return value; // the user's own
    if (Array.isArray(value)) return value.map((item) => colored(item));
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, colored(v, k)]));
    if (typeof value === "string" && value[0] === "@") return getComputedStyle(document.documentElement).getPropertyValue(`--${value.slice(1)}`).trim();
    return value;
  }

  const figureOf = (name) => document.querySelector(`[data-figure="${name}"]`);

  async function draw(name) {
    const { spec, canvas } = facts.figures[name], place = figureOf(name).querySelector(".plot");
    drawing[name]?.finalize();
    const theme = dark.matches ? "dark" : "light";
    const options = { mode: "vega-lite", renderer: canvas ? "canvas" : "svg", actions: false, defaultStyle: false, tooltip: { theme } };
    drawing[name] = await vegaEmbed(place, filled(colored(spec), latest[name]), options);
    place.dataset.drawn = "yes";
  }

  const copies = (rows) => rows.map((row) => ({ ...row }));

  function filled(spec, shown) {
    if (!shown) return spec;
    const params = (spec.params ?? []).map((param) => ({ ...param, value: shown.signals?.[param.name] ?? param.value }));
    return { ...spec, ...(params.length ? { params } : {}), datasets: { ...spec.datasets, rows: copies(shown.rows) } };
  }

  function refill(view, shown) {
    for (const [signal, value] of Object.entries(shown.signals ?? {})) view.signal(signal, value);
    return view.data("rows", copies(shown.rows)).resize().runAsync();
  }

  async function show(name, shown) {
    const figure = figureOf(name);
    figure.hidden = !shown;
    if (!shown) return;
    const first = !latest[name];
    latest[name] = shown;
    if (shown.title) figure.querySelector("h3").textContent = shown.title;
    const body = figure.querySelector("[data-rows]");
    if (body) body.replaceChildren(...shown.table.map(tableRow));
    if (first || !drawing[name]) return draw(name);
    await refill(drawing[name].view, shown);
  }

  function tableRow(cells) {
    const row = document.createElement("tr");
    cells.forEach((cell, number) => {
      const place = document.createElement(number ? "td" : "th");
      if (!number) place.scope = "row";
      place.textContent = typeof cell === "number" ? short(cell) : cell ?? "-";
      row.append(place);
    });
    return row;
  }

  // Numbers and bytes.
  function short(value, digits = 4) {
    if (value === null || value === undefined) return "-";
    const size = Math.abs(value);
    if (Number.isInteger(value) || size >= 1000) return Math.round(value).toLocaleString("en-US");
    return String(Number(value.toPrecision(digits)));
  }
  const percent = (value) => `${(100 * value).toFixed(1)} %`;
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

  function spikes(groups, texts, steps, place) {
    const rows = [], table = [];
    let base = 0;
    texts.forEach((text, group) => {
      const bits = bytes(text), [name, neurons] = groups[group];
      let count = 0;
      for (let n = 0; n < neurons; n++) for (let s = 0; s < steps; s++) {
        const bit = n * steps + s;
        if ((bits[bit >> 3] >> (7 - (bit & 7))) & 1) { rows.push({ x: place(s), y: base + n, group }); count++; }
      }
      table.push([name, neurons, count]);
      base += neurons + 2;
    });
    return { rows, table, signals: { top: base - 2 } };
  }

  function picture(text, [height, width], signed = false) {
    const values = bytes(text), rows = [];
    for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
      const v = values[y * width + x];
      rows.push({ x, y, v: signed ? (v - 128) / 127 : v / 255 });
    }
    return { rows };
  }

  const within = (shown, signals) => ({ ...shown, signals: { ...shown.signals, ...signals } });
  const lines = (all, x) => all.flatMap((line, number) => line.map((y, i) => ({ x: x(i), y, line: number })));
  const columns = (all, x) => all[0].map((_, i) => [short(x(i)), ...all.map((line) => line[i])]);
  const drawn = (all, x) => ({ rows: lines(all, x), table: columns(all, x) });

  // What is shown of one thing: its words, and what goes into each figure. `count` says how many there are.
  const kinds = {
    forecasts: {
      count: (data) => data.ends.length,
      show(data, at, c) {
        const place = data.places[at], x = (i) => (place.at ? place.at[i] : place.from + i * place.step);
        const { window } = data, past = data.past[at][c], truth = data.truth[at][c], forecast = data.forecast[at][c];
        const rows = past.map((value, i) => ({ x: x(i), past: value })), table = [];
        const name = (i) => (data.time ? new Date(x(i)).toISOString().slice(0, 16).replace("T", " ") : String(x(i)));
        // The window's line goes on to the first row that came.
        Object.assign(rows[window - 1], { truth: past[window - 1], start: true });
        forecast.forEach((value, h) => {
          const row = { x: x(window + h), truth: truth[h], forecast: value }, cells = [name(window + h), value];
          if (data.half) {
            row.low = Math.max(value - data.half[c][h], data.floor[at][c] ?? -Infinity);
            row.high = value + data.half[c][h];
            cells.push(row.low, row.high);
          }
          rows.push(row), table.push([...cells, truth[h]]);
        });
        const signals = { low: x(0), high: x(window + forecast.length - 1) };
        const texts = data.rasters[at][data.shared ? c : 0];
        const inside = data.inside ? ` ${data.inside[at][c]} of ${forecast.length} values lie within the 90 % interval.` : "";
        return {
          text: `Forecast ${at + 1} of ${data.ends.length}, made at ${data.ends[at]}, of ${data.channels[c]}: RMSE ${short(data.rmse[at][c])}.${inside}`,
          figures: { fan: { rows, table, signals }, raster: texts.length ? within(spikes(data.groups, texts, window, x), signals) : null },
        };
      },
    },
    samples: {
      few: (data, choice) => (choice === 1 ? data.items.filter((item) => item.said !== item.true) : data.items),
      count(data, choice) { return this.few(data, choice).length; },
      show(data, at, choice) {
        const few = this.few(data, choice), item = few[at], name = (c) => data.classes[c];
        const known = item.true !== null, right = item.true === item.said;
        const truth = known ? (right ? " That is right." : ` That is wrong: it is of class ${name(item.true)}.`) : "";
        const rows = item.classes.map((c, i) => ({ name: name(c), y: item.p[i], mark: known && c === item.true }));
        return {
          text: `Sample ${at + 1} of ${few.length} (number ${item.number}): the model says ${name(item.said)}, with a probability of ${percent(item.sure)}.${truth}`,
          figures: {
            sample: picture(item.picture, data.shape),
            probabilities: { rows, table: rows.map((row) => [row.name, percent(row.y)]) },
            raster: within(spikes(data.groups, item.rasters, data.steps, (s) => s), { low: 0, high: Math.max(data.steps - 1, 1) }),
          },
        };
      },
    },
    series_neurons: {
      count: (data, layer) => data.layers[layer].length,
      show(data, at, layer) {
        const neuron = data.layers[layer][at], { figures, text } = neuronFacts(neuron, at, data.layers[layer].length, layer);
        const x = (i) => i - data.window + 1, pair = neuron.pair, of = neuron.channel ? ` (${neuron.channel})` : "";
        figures.profile = neuron.profile ? drawn(neuron.profile, x) : null;
        let words = neuron.profile ? ` It fires ${short(neuron.counts[0])} times in the windows in which it fires most${of}, and ${short(neuron.counts[1])} times where it fires least.` : " It fires alike in all windows shown here.";
        if (pair) {
          figures.pair = drawn(pair.shapes, x);
          figures.potentials = drawn(pair.potentials, (i) => i);
          words += pair.alone ? ` It was made from what surrounds one training window: ${pair.names[0]}.` : ` It was made from two training windows: ${pair.names[0]}; and ${pair.names[1]}.`;
        }
        return { text: text + words, figures };
      },
    },
    class_neurons: {
      count: (data, layer) => data.layers[layer].length,
      show(data, at, layer) {
        const neuron = data.layers[layer][at], { figures, text } = neuronFacts(neuron, at, data.layers[layer].length, layer);
        let words = "";
        if ("field" in neuron || document.querySelector('[data-figure="field"]'))
          figures.field = neuron.field ? picture(neuron.field.bytes, neuron.field.shape, true) : null;
        if (neuron.means) {
          const { classes, spikes: means } = neuron.means, most = means.indexOf(Math.max(...means)), least = means.indexOf(Math.min(...means));
          const rows = classes.map((c, i) => ({ name: data.classes[c], y: means[i] }));
          figures.means = { rows, table: rows.map((row) => [row.name, row.y]) };
          words += ` It fires most for class ${rows[most].name} (${short(means[most])} spikes per sample) and least for class ${rows[least].name} (${short(means[least])}); classes explain ${percent(neuron.explained)} of how its spikes vary.`;
        }
        const pair = neuron.pair;
        if (pair) {
          [0, 1].forEach((k) => { figures[`pair_${k}`] = { ...picture(pair.pictures[k], data.shape), title: `Pair: class ${data.classes[pair.classes[k]]}` }; });
          figures.potentials = drawn(pair.potentials, (i) => i);
          const [one, two] = pair.classes.map((c) => data.classes[c]);
          words += pair.alone ? ` It was made from what surrounds a training sample of class ${one}.` : ` It was made from a training sample of class ${one} and one of class ${two}.`;
        }
        return { text: text + words, figures };
      },
    },
  };

  function neuronFacts(neuron, at, count, layer) {
    const silent = neuron.rate === 0 ? " It is silent here." : "";
    const weights = neuron.weights ?? null;
    return {
      text: `Neuron ${at + 1} of ${count}, number ${neuron.number} of hidden layer ${layer + 1}: delay ${short(neuron.delay, 3)}, ${neuron.support === null ? "no leak" : `support ${short(neuron.support, 3)} steps`}, ${short(neuron.rate, 3)} spikes per step here (${short(neuron.fit, 3)} in the fit).${silent}`,
      figures: {
        kernel: drawn([neuron.kernel], (i) => i),
        weights: weights ? { rows: weights, table: weights.map((row) => [row.name, row.y]) } : null,
      },
    };
  }

  function start(place) {
    const { script, what, data } = facts.steppers[place.dataset.stepper], kind = kinds[script];
    const slider = place.querySelector("input"), select = place.querySelector("select"), status = place.querySelector(".status");
    const buttons = [...place.querySelectorAll("[data-move]")];
    let at = 0;
    async function go(to) {
      const choice = select ? Number(select.value) : 0, count = kind.count(data, choice);
      at = Math.min(Math.max(to, 0), count - 1);
      const found = kind.show(data, at, choice);
      slider.max = count, slider.value = at + 1, slider.disabled = count < 2;
      slider.setAttribute("aria-valuetext", `${what} ${at + 1} of ${count}`);
      status.textContent = found.text;
      buttons.forEach((button) => { button.disabled = at + Number(button.dataset.move) < 0 || at + Number(button.dataset.move) >= count; });
      await Promise.all(Object.entries(found.figures).map(([name, shown]) => show(name, shown)));
      place.dataset.at = at;
    }
    buttons.forEach((button) => button.addEventListener("click", () => go(at + Number(button.dataset.move))));
    slider.addEventListener("input", () => go(Number(slider.value) - 1));
    if (select) select.addEventListener("change", () => go(script === "forecasts" ? at : 0));
    place.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!move || event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input, select, .scroll")) return;
      event.preventDefault();
      go(at + move);
    });
    return go(0);
  }

  async function begin() {
    const inside = new Set([...document.querySelectorAll(".stepper [data-figure]")].map((f) => f.dataset.figure));
    const steppers = [...document.querySelectorAll("[data-stepper]")].map(start);
    await Promise.all([...steppers, ...Object.keys(facts.figures).filter((name) => !inside.has(name)).map(draw)]);
    document.documentElement.dataset.ready = "yes";
  }

  dark.addEventListener("change", () => Object.keys(drawing).forEach(draw));
  begin();
})();
