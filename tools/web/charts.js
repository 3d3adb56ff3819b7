// Charts with a scale: bars of one publication, lines of many, predicted against measured. SVG by D3. Each draws all of
// it anew into its container, and returns nothing.
const Charts = (() => {
  'use strict';

  const {draw, drawEach} = Dom;

  const widthOf = (container, least = 320) => Math.max(least, container.clientWidth);

  function svgIn(container, width, height, label) {
    for (const other of container.querySelectorAll(':scope > :not(svg)')) other.remove();
    const svg = drawEach(d3.select(container), 'svg', [0], {width, height, role: 'img', 'aria-label': label});
    svg.selectAll('*').remove();
    return svg;
  }

  function axes(svg, {x, y, left, right, top, bottom, xTicks = [], xText, yTicks, yText, xLabel, yLabel}) {
    const level = (d) => Math.round(y(d)) + 0.5;
    drawEach(draw(svg, 'g', {class: 'grid'}), 'line', yTicks, {x1: left, x2: right, y1: level, y2: level});
    const along = draw(svg, 'g', {class: 'axis'});
    draw(along, 'line', {x1: left, x2: right, y1: bottom + 0.5, y2: bottom + 0.5});
    drawEach(along, 'text', xTicks, {x: (d) => x(d), y: bottom + 16, 'text-anchor': 'middle'}, xText);
    const up = draw(svg, 'g', {class: 'axis'});
    drawEach(up, 'text', yTicks, {x: left - 7, y: (d) => y(d) + 4, 'text-anchor': 'end'}, yText);
    if (xLabel)
      draw(svg, 'text', {class: 'label', x: (left + right) / 2, y: bottom + 33, 'text-anchor': 'middle'}, xLabel);
    if (yLabel) draw(svg, 'text', {class: 'label', x: 0, y: top - 10, 'text-anchor': 'start'}, yLabel);
  }

  /// Linear from 0 where the values are of one size, logarithmic where they are not, so that small ones are seen.
  function scaleOf(values, range) {
    const known = values.filter((value) => value > 0);
    const most = d3.max(known) ?? 1, least = d3.min(known) ?? most;
    if (most / least < 25) {
      const scale = d3.scaleLinear().domain([0, most]).nice(4).range(range);
      return {scale, ticks: scale.ticks(4), isLog: false};
    }
    const low = Math.floor(Math.log10(least)), high = Math.ceil(Math.log10(most));
    const scale = d3.scaleLog().domain([10 ** low, 10 ** high]).range(range).clamp(true);
    return {
      scale,
      ticks: d3.range(low, high + 1)
                 .filter((power) => (power - low) % Math.ceil((high - low) / 5) === 0)
                 .map((power) => 10 ** power),
      isLog: true
    };
  }

  /// Powers of two for bytes: a scale whose ticks have round units.
  function byteScaleOf(values, range) {
    const known = values.filter((value) => value > 0);
    const most = d3.max(known) ?? 1024, least = d3.min(known) ?? most;
    if (most / least < 25) {
      const unit = 1024 ** Math.floor(Math.log2(most) / 10);
      const inUnits = d3.scaleLinear().domain([0, most / unit]).nice(3).range(range);
      const scale = (bytes) => inUnits(bytes / unit);
      return {scale, ticks: inUnits.ticks(3).map((tick) => tick * unit), zero: range[0]};
    }
    const low = Math.floor(Math.log2(least)) - 1, high = Math.ceil(Math.log2(most));
    const scale = d3.scaleLog().base(2).domain([2 ** low, 2 ** high]).range(range).clamp(true);
    const step = Math.max(1, Math.ceil((high - low) / 4));
    return {scale, ticks: d3.range(high, low, -step).map((power) => 2 ** power).reverse(), zero: range[0]};
  }

  function shortSeconds(seconds) {
    const [value, unit] = seconds >= 7200 ? [seconds / 3600, 'h'] :
        seconds >= 300                    ? [seconds / 60, 'min'] :
        seconds >= 1 || seconds === 0     ? [seconds, 's'] :
                                            [seconds * 1000, 'ms'];
    return `${d3.format('~g')(Number(value.toPrecision(3)))} ${unit}`;
  }
  const shortBytes = (bytes) => Model.bytesText(bytes).replace(/\.0+ /, ' ').replace(/(\.\d*?)0+ /, '$1 ');

  // ---- one publication

  /// `rows` of Model.waterfallOf(), and the publication that they are of.
  function waterfall(container, rows, entry) {
    const top = 26, pitch = 21, bar = 13, left = 126, right = 176;
    const width = widthOf(container, 560), height = top + rows.length * pitch + 40;
    const ends = rows.flatMap((row) => [row.end ?? 0, ...row.segments.map((segment) => segment.to)]);
    const most = Math.max(d3.max(ends) ?? 0, entry.predicted_s || 0, 1e-3);
    const x = d3.scaleLinear().domain([0, most * 1.02]).range([left, width - right]);
    const svg =
        svgIn(container, width, height, `Phases of version ${entry.version} at ${rows.length - 1} workers, in seconds`);
    const bottom = top + rows.length * pitch;
    const ticks = x.ticks(Math.max(3, Math.floor((width - left - right) / 110)));
    const upright = (d) => Math.round(x(d)) + 0.5;
    drawEach(draw(svg, 'g', {class: 'grid'}), 'line', ticks, {x1: upright, x2: upright, y1: top - 4, y2: bottom});
    const axis = draw(svg, 'g', {class: 'axis'});
    drawEach(axis, 'text', ticks, {x: (d) => x(d), y: bottom + 15, 'text-anchor': 'middle'}, shortSeconds);
    const label = (at, y, anchor, text) => draw(svg, 'text', {class: 'label', x: at, y, 'text-anchor': anchor}, text);
    label((left + width - right) / 2, bottom + 33, 'middle', 'time since the publication began');
    label(width - 92, 12, 'end', 'installed');
    label(width - 2, 12, 'end', 'bytes');
    const marks = [
      ['T_bcast(0.5)', entry.t50_s, 't50'], ['T_bcast(0.9)', entry.t90_s, 't90'],
      ['predicted', entry.predicted_s || null, 'predicted']
    ].filter(([, at]) => at !== null);
    const groups = svg.selectAll('g.bar-row')
                       .data(rows)
                       .join('g')
                       .attr('class', 'bar-row')
                       .attr('transform', (row, i) => `translate(0,${top + i * pitch})`);
    draw(groups, 'rect', {class: 'hit', width, height: pitch});
    draw(
        groups, 'text', {x: left - 10, y: 14, 'text-anchor': 'end', 'font-weight': (row) => (row.cause ? 700 : 400)},
        (row) => (row.name.length <= 16 ? row.name : `${row.name.slice(0, 7)}…${row.name.slice(-8)}`));
    Dom.set(groups.selectAll('rect.phase').data((row) => row.segments).join('rect'), {
      class: (segment) => `phase fill-${segment.phase}`,
      x: (segment) => x(segment.from),
      y: (pitch - bar) / 2,
      height: bar,
      width: (segment) => Math.max(0.6, x(segment.to) - x(segment.from))
    });
    const figure = (at, text) => draw(groups, 'text', {class: 'soft', x: at, y: 14, 'text-anchor': 'end'}, text);
    figure(width - 92, (row) => (row.who === 'origin' ? '' : Model.secondsText(row.end)));
    figure(width - 2, (row) => (row.bytes === null ? '' : Model.bytesText(row.bytes)));
    const place = ([, at]) => x(at);
    draw(
        svg.selectAll('g.mark').data(marks).join('g').attr('class', 'mark'), 'line',
        {class: ([, , name]) => `series line-${name} dash`, x1: place, x2: place, y1: top - 4, y2: bottom});
    // Names of marks that would lie on each other stand apart.
    let last = Infinity;
    for (const [name, at] of [...marks].sort((a, b) => b[1] - a[1])) {
      const from = Math.min(x(at) + 3, last - 84, width - right - 50);
      last = from;
      draw(svg, 'text', {class: 'label', x: from, y: 12}, name);
    }
    groups.append('title').text((row) => rowText(row));
  }

  function rowText(row) {
    const lines = row.segments.map(
        (segment) => `${Model.PHASE[segment.phase].label}: ${Model.secondsText(segment.to - segment.from)}`);
    const from = row.fed_by ? [`fed by ${row.fed_by}`] : [];
    return [row.name, ...from, ...lines, ...(row.remark ? [row.remark] : [])].join('\n');
  }

  // ---- many publications

  /// T_bcast and bytes of publications, one beside another. `choose(version)` is called for a click.
  function history(container, entries, chosen, choose) {
    const width = widthOf(container), left = 58, right = width - 8;
    const first = {top: 30, bottom: 182}, second = {top: 232, bottom: 306};
    if (entries.length === 0)
      return Dom.replace(
          container, Dom.make('p', {class: 'note'}, 'Nothing has been published since the origin was started.'));
    const svg = svgIn(container, width, second.bottom + 40, historyText(entries));
    const x = d3.scaleLinear().domain([-0.5, entries.length - 0.5]).range([left, right]);
    const every = Math.max(1, Math.ceil(entries.length / Math.max(2, Math.floor((right - left) / 70))));
    const xTicks = d3.range(0, entries.length, every);
    const xText = (i) => entries[i].version;
    const times = entries.flatMap((entry) => [entry.t50_s, entry.t90_s, entry.t100_s, entry.predicted_s]);
    const y = scaleOf(times, [first.bottom, first.top]);
    const at = entries.findIndex((entry) => entry.version === chosen);
    if (at >= 0) {
      const band = Math.min(40, Math.max(3, x(1) - x(0)));
      draw(svg, 'rect', {
        class: 'chosen-mark',
        x: x(at) - band / 2,
        width: band,
        y: first.top - 6,
        height: second.bottom - first.top + 6
      });
    }
    axes(svg, {
      x,
      y: y.scale,
      left,
      right,
      ...first,
      yTicks: y.ticks,
      yText: shortSeconds,
      yLabel: `T_bcast${y.isLog ? ', logarithmic' : ''}`
    });
    const series = [['predicted', 'predicted_s'], ['t50', 't50_s'], ['t90', 't90_s'], ['t100', 't100_s']];
    for (const [name, member] of series) {
      const known = (entry) => entry[member] !== null && entry[member] > 0;
      const line = d3.line().defined(known).x((entry, i) => x(i)).y((entry) => y.scale(entry[member]));
      draw(svg, 'path', {class: `series line-${name}${name === 'predicted' ? ' dash' : ''}`, d: line(entries)});
      if (entries.length > 60 || name === 'predicted') continue;
      const points = entries.map((entry, i) => [entry, i]).filter(([entry]) => known(entry));
      drawEach(
          svg.append('g'), 'circle', points,
          {class: `series line-${name}`, cx: ([, i]) => x(i), cy: ([entry]) => y.scale(entry[member]), r: 2});
    }
    const bytes =
        byteScaleOf(entries.flatMap((entry) => [entry.payload_bytes, entry.sent_bytes]), [second.bottom, second.top]);
    axes(svg, {
      x,
      y: bytes.scale,
      left,
      right,
      ...second,
      xTicks,
      xText,
      xLabel: 'version',
      yTicks: bytes.ticks,
      yText: shortBytes,
      yLabel: 'Bytes: sent by the origin, and the payload that each worker takes'
    });
    const thick = Math.max(1, Math.min(18, (x(1) - x(0)) * 0.62));
    for (const [name, member] of [['sent', 'sent_bytes'], ['payload', 'payload_bytes']]) {
      // One path of upright strokes: a thousand bars as one element.
      const strokes = entries
                          .map(
                              (entry, i) =>
                                  (entry[member] > 0 ?
                                       `M${x(i).toFixed(1)},${bytes.zero}V${bytes.scale(entry[member]).toFixed(1)}` :
                                       ''))
                          .join('');
      draw(svg, 'path', {
        class: `bars-${name}`,
        d: strokes,
        fill: 'none',
        stroke: `var(--${name})`,
        'stroke-width': name === 'sent' ? thick : Math.max(1, thick * 0.5)
      });
    }
    const hit = draw(svg, 'rect', {class: 'hit', x: left, width: right - left, y: 0, height: second.bottom});
    const nearest = (event) => entries[Math.max(
        0,
        Math.min(entries.length - 1, Math.round(x.invert(event.clientX - svg.node().getBoundingClientRect().left))))];
    hit.node().addEventListener('click', (event) => choose(nearest(event).version));
    hit.node().addEventListener(
        'pointermove', (event) => Dom.showTip(entryText(nearest(event)), event.clientX, event.clientY));
    hit.node().addEventListener('pointerleave', Dom.hideTip);
  }

  function entryText(entry) {
    return [
      `version ${entry.version}: ${entry.state}, ${entry.installed} of ${entry.workers}`,
      `T_bcast ${['t50_s', 't90_s', 't100_s'].map((member) => Model.secondsText(entry[member])).join(' / ')}`,
      `predicted ${entry.predicted_s > 0 ? Model.secondsText(entry.predicted_s) : '–'}`,
      `${Model.bytesText(entry.payload_bytes)} ${entry.kind}, ${Model.bytesText(entry.sent_bytes)} sent`,
      Model.whyOf(entry)
    ].filter(Boolean)
        .join('\n');
  }

  function historyText(entries) {
    const median = Model.quantileOf(entries.map((entry) => entry.t90_s ?? NaN), 0.5);
    return `T_bcast and bytes of ${entries.length} publications, versions ${entries[0].version} to ${
        entries.at(-1).version}; median T_bcast(0.9) ${Model.secondsText(median)}`;
  }

  /// Points of Model.forecastsOf(). Above the band the forecast was missed.
  function forecast(container, points, chosen, choose) {
    const width = widthOf(container, 260), left = 58, right = width - 12, top = 30, bottom = 306;
    if (points.length === 0)
      return Dom.replace(container, Dom.make('p', {class: 'note'}, 'No publication has reached all workers yet.'));
    const svg = svgIn(
        container, width, bottom + 40, `Measured against predicted T_bcast(1.0) of ${points.length} publications`);
    const values = points.flatMap((point) => [point.predicted, point.measured]);
    const low = 10 ** Math.floor(Math.log10(d3.min(values))),
          high = 10 ** Math.ceil(Math.log10(d3.max(values) * 1.0001));
    const x = d3.scaleLog().domain([low, high]).range([left, right]).clamp(true),
          y = d3.scaleLog().domain([low, high]).range([bottom, top]).clamp(true);
    const ticks = d3.range(Math.log10(low), Math.log10(high) + 1e-9).map((power) => 10 ** Math.round(power));
    const along = d3.range(0, 61).map((i) => low * (high / low) ** (i / 60));
    const band = d3.area().x((at) => x(at)).y0((at) => y(at)).y1((at) => y(Model.missAbove(at)));
    draw(svg, 'path', {class: 'band', d: band(along)});
    draw(svg, 'path', {class: 'diagonal', d: `M${x(low)},${y(low)}L${x(high)},${y(high)}`});
    axes(svg, {
      x,
      y,
      left,
      right,
      top,
      bottom,
      xTicks: ticks,
      xText: shortSeconds,
      yTicks: ticks,
      yText: shortSeconds,
      xLabel: 'predicted',
      yLabel: 'measured'
    });
    drawEach(svg.append('g'), 'circle', points, {
      class: (point) => `point${point.missed ? ' off' : ''}${point.version === chosen ? ' chosen' : ''}`,
      cx: (point) => x(point.predicted),
      cy: (point) => y(point.measured),
      r: points.length > 200 ? 2.5 : 4
    })
        .on('click', (point) => choose(point.version))
        .append('title')
        .text(
            (point) => `version ${point.version}: predicted ${Model.secondsText(point.predicted)}, measured ${
                Model.secondsText(point.measured)}`);
  }

  // ---- lines

  /// `series`: [{name, label, points: [[x, y]]}].
  function lines(
      container, series,
      {height = 150, xLabel, yLabel, xText = String, yText = String, log = false, label, zero = true}) {
    const width = widthOf(container, 220), left = 58, right = width - 70, top = 26, bottom = height - 40;
    const all = series.flatMap((one) => one.points);
    if (all.length === 0) return Dom.replace(container);
    const svg = svgIn(container, width, height, label);
    const xs = d3.extent(all, (point) => point[0]), ys = d3.extent(all, (point) => point[1]);
    const x = (log ? d3.scaleLog() : d3.scaleLinear())
                  .domain(xs[0] === xs[1] ? [xs[0] * 0.9, xs[1] * 1.1 + 1e-9] : xs)
                  .range([left, right]);
    const y = d3.scaleLinear()
                  .domain([zero ? Math.min(0, ys[0]) : ys[0], ys[1] > ys[0] || ys[1] > 0 ? ys[1] : 1])
                  .nice(4)
                  .range([bottom, top]);
    const xTicks = log ? series[0].points.map((point) => point[0]) : x.ticks(5);
    axes(svg, {x, y, left, right, top, bottom, xTicks, xText, yTicks: y.ticks(3), yText, xLabel, yLabel});
    const names = [];
    for (const one of series) {
      const line = d3.line()(one.points.map(([a, b]) => [x(a), y(b)]));
      draw(svg, 'path', {class: `series line-${one.name}`, d: line});
      if (one.points.length > 0) names.push({label: one.label, name: one.name, y: y(one.points.at(-1)[1])});
    }
    names.sort((a, b) => a.y - b.y);
    names.forEach((name, i) => {
      if (i > 0) name.y = Math.max(name.y, names[i - 1].y + 13);
    });
    drawEach(
        svg.append('g'), 'text', names, {class: 'label', x: right + 6, y: (name) => name.y + 4}, (name) => name.label);
  }

  return {waterfall, history, forecast, lines, shortSeconds};
})();
