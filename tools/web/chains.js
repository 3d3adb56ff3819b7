// The picture of who feeds whom. A small fleet has a box per node and a rate at each edge; a large one a cell per
// worker, a strip of them for each seed, from near to far. Either way a node can be reached by arrow keys.
const Chains = (() => {
  'use strict';

  const BOXES_MAX = 48;  // nodes that have room for a name
  const DEPTH_MAX = 10;
  const BOX = {width: 124, height: 42, gap: 84, pitch: 56};
  const CELL = {size: 13, pitch: 16, label: 190};

  let items = [];  // what arrow keys go through: {key, x, y, element}
  let focused = null;

  function draw(container, fleet, ui) {
    const {origin, chains, apart} = Model.chainsOf(fleet);
    const depth = Math.max(0, ...chains.map((members) => members.at(-1).depth));
    const count = chains.reduce((sum, members) => sum + members.length, 0) + apart.length;
    const isBoxes = count <= BOXES_MAX && depth < DEPTH_MAX;
    const svg =
        d3.select(container)
            .selectAll('svg')
            .data([isBoxes ? 'boxes' : 'cells'], (kind) => kind)
            .join((enter) => enter.append('svg').attr('role', 'group').each(function() { listen(this, fleet, ui); }));
    svg.attr('aria-label', `${count} workers in ${chains.length} chains`);
    const groups = chains.map((members) => ({name: members[0].node.name, members, isApart: false}));
    if (apart.length > 0) groups.push({name: 'in no chain', members: apart, isApart: true});
    if (isBoxes)
      drawBoxes(svg, container, fleet, origin, groups, ui);
    else
      drawCells(svg, container, fleet, groups, ui);
    if (!items.some((item) => item.key === focused)) focused = items.length > 0 ? items[0].key : null;
    for (const item of items) {
      const index = item.key === focused ? '0' : '-1';
      if (item.element.getAttribute('tabindex') !== index) item.element.setAttribute('tabindex', index);
    }
  }

  // ---- boxes

  function drawBoxes(svg, container, fleet, origin, groups, ui) {
    const columns =
        Math.max(1, ...groups.filter((group) => !group.isApart).map((group) => group.members.at(-1).depth + 1));
    const space = (container.clientWidth - 8 - (columns + 1) * BOX.width) / columns;
    const gap = Math.max(BOX.gap, Math.min(150, space));
    const placed = [];
    let row = 0;
    const apartPerRow = Math.max(1, columns);
    let apartAt = 0;
    for (const group of groups) {
      if (group.isApart) {
        row += 0.1;
        apartAt = row * BOX.pitch;
        group.members.forEach((member, i) => {
          placed.push(
              {...member, isApart: true, column: i % apartPerRow, row: row + 0.3 + Math.floor(i / apartPerRow)});
        });
        row += 0.3 + Math.ceil(group.members.length / apartPerRow);
      } else {
        const rows = Model.placeRows(group.members);
        for (const member of group.members) placed.push({...member, column: member.depth, row: row + member.row});
        row += rows;
      }
    }
    const fedRows = groups.some((group) => group.isApart) ? apartAt / BOX.pitch - 0.1 : row;
    const boxes = placed.map((one) => ({
                               ...one,
                               x: BOX.width + gap + one.column * (BOX.width + gap),
                               y: one.row * BOX.pitch,
                             }));
    const at = new Map(boxes.map((box) => [box.key, box]));
    if (origin) {
      const key = Model.keyOf(origin);
      const box = {key, node: origin, isOrigin: true, x: 0, y: Math.max(0, (fedRows - 1) / 2) * BOX.pitch};
      boxes.unshift(box);
      at.set(key, box);
    }
    const height = Math.max(1, row) * BOX.pitch - (BOX.pitch - BOX.height) + 4;
    svg.attr('width', Math.max(BOX.width, (columns + 1) * BOX.width + columns * gap + 2)).attr('height', height);

    const originKey = origin ? Model.keyOf(origin) : null;
    const edges = boxes.filter((box) => !box.isOrigin && !box.isApart && at.has(box.parent ?? originKey))
                      .map((box) => ({
                             key: box.key,
                             from: at.get(box.parent ?? originKey),
                             to: box,
                             link: Model.linkOf(fleet, box.node)
                           }));
    svg.selectAll('path.edge')
        .data(edges, (edge) => edge.key)
        .join((enter) => enter.insert('path', '.node'))
        .attr('class', (edge) => `edge${edge.link && edge.link.live ? ' live' : ''}`)
        .attr('d', ({from, to}) => elbow(from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2));
    svg.selectAll('text.rate')
        .data(edges.filter((edge) => edge.link), (edge) => edge.key)
        .join('text')
        .attr('class', (edge) => `rate${edge.link.live ? ' live' : ''}`)
        .attr('x', ({to}) => to.x - (gap - 18) / 2)
        .attr('y', ({to}) => to.y + BOX.height / 2 - 4)
        .text((edge) => Model.rateText(edge.link.bytes_per_s));
    svg.selectAll('text.apart')
        .data(groups.some((group) => group.isApart) ? ['not fed now'] : [])
        .join('text')
        .attr('class', 'apart soft')
        .attr('x', BOX.width + gap - 12)
        .attr('text-anchor', 'end')
        .attr('y', apartAt + 0.3 * BOX.pitch + BOX.height / 2 + 4)
        .text((text) => text);

    const nodes = svg.selectAll('g.node').data(boxes, (box) => box.key).join((enter) => {
      const g = enter.append('g').attr('role', 'button');
      Dom.draw(g, 'rect', {class: 'box', width: BOX.width, height: BOX.height, rx: 7});
      Dom.draw(g, 'rect', {class: 'side', width: 5, height: BOX.height - 12, x: 6, y: 6, rx: 2.5});
      Dom.draw(g, 'text', {class: 'name', x: 18, y: 17});
      Dom.draw(g, 'text', {class: 'soft line', x: 18, y: 32});
      const strip = {x: 18, y: BOX.height - 6, height: 3, rx: 1.5};
      Dom.draw(g, 'rect', {class: 'track', width: BOX.width - 26, ...strip});
      Dom.draw(g, 'rect', {class: 'done fill-receiving', ...strip});
      return g;
    });
    nodes.attr('class', (box) => classOf('node', box, ui))
        .attr('transform', (box) => `translate(${box.x + 1},${box.y + 1})`);
    nodes.each(function(box) {
      const {node} = box;
      const g = d3.select(this);
      const isReceiving = Model.isReceiving(node);
      this.setAttribute(
          'aria-label', box.isOrigin ? `origin ${node.name}, version ${node.version}` : Model.nodeText(fleet, node));
      g.select('.side').attr('class', `side fill-${node.state}`);
      g.select('.name').text(fitted(node.name, 16));
      g.select('.line').text(lineOf(box));
      g.select('.track').attr('visibility', isReceiving ? 'visible' : 'hidden');
      g.select('.done')
          .attr('visibility', isReceiving ? 'visible' : 'hidden')
          .attr('width', Model.progressOf(node) * (BOX.width - 26));
    });
    items = [];
    nodes.each(function(box) { items.push({key: box.key, x: box.x, y: box.y, element: this}); });
  }

  /// A line that turns twice, with round corners.
  function elbow(x0, y0, x1, y1) {
    const bend = x0 + 18, round = Math.sign(y1 - y0) * Math.min(6, Math.abs(y1 - y0) / 2);
    return `M${x0},${y0}H${bend - 6}Q${bend},${y0} ${bend},${y0 + round}V${y1 - round}` +
        `Q${bend},${y1} ${bend + 6},${y1}H${x1}`;
  }

  function lineOf({node, isOrigin}) {
    if (isOrigin) return node.version > 0 ? `origin · ${node.version}` : 'origin';
    if (Model.isReceiving(node)) return `${Model.percentText(Model.progressOf(node))} of ${node.receiving_version}`;
    if (node.state === 'idle') return node.version > 0 ? `has ${node.version}` : 'no version yet';
    return node.version > 0 ? `${node.state} · ${node.version}` : node.state;
  }

  const fitted = (text, most) =>
      (text.length <= most ? text : `${text.slice(0, most / 2 - 1)}…${text.slice(-(most / 2))}`);
  const classOf = (kind, item, ui) => `${kind}${item.key === ui.worker ? ' chosen' : ''}${
      ui.found && !item.isOrigin && !ui.found.has(item.key) ? ' missed' : ''}`;

  // ---- cells

  function drawCells(svg, container, fleet, groups, ui) {
    const perLine = Math.max(8, Math.floor((container.clientWidth - CELL.label - 8) / CELL.pitch));
    const cells = [];
    const labels = [];
    let y = 0;
    for (const group of groups) {
      group.members.forEach((member, i) => {
        cells.push(
            {...member, x: CELL.label + (i % perLine) * CELL.pitch, y: y + Math.floor(i / perLine) * CELL.pitch});
      });
      const lines = Math.ceil(group.members.length / perLine);
      const summary = Model.chainSummaryOf(fleet, group.members);
      labels.push({
        key: `${group.isApart}/${group.name}`,
        y,
        name: group.isApart ? 'not fed now' : `from ${group.name}`,
        lines,
        text: group.isApart ? `${group.members.length} workers` : `${summary.have} of ${summary.size} have it`,
      });
      y += Math.max(lines * CELL.pitch, 32) + 8;
    }
    svg.attr('width', CELL.label + perLine * CELL.pitch).attr('height', Math.max(16, y - 8));
    const heads = svg.selectAll('g.strip').data(labels, (label) => label.key).join((enter) => {
      const g = Dom.draw(enter, 'g', {class: 'strip'});
      Dom.draw(g, 'text', {class: 'name', y: 11});
      Dom.draw(g, 'text', {class: 'soft', y: 26});
      return g;
    });
    heads.attr('transform', (label) => `translate(0,${label.y})`);
    heads.select('.name').text((label) => fitted(label.name, 26));
    heads.select('.soft').text((label) => label.text);

    items = [];
    svg.selectAll('rect.cell')
        .data(cells, (cell) => cell.key)
        .join((enter) => Dom.draw(enter, 'rect', {role: 'button', width: CELL.size, height: CELL.size, rx: 2.5}))
        .each(function(cell) {
          // Only what has changed: of a thousand workers most have not.
          const before = this.drawn || {};
          let {opacity} = before;
          if (before.x !== cell.x) this.setAttribute('x', cell.x);
          if (before.y !== cell.y) this.setAttribute('y', cell.y);
          const looks = `${classOf('cell', cell, ui)} fill-${cell.node.state}`;
          if (before.looks !== looks) this.setAttribute('class', looks);
          if (before.revision !== cell.node.revision) {
            const isReceiving = Model.isReceiving(cell.node);
            // In tenths, so that a step is seen and not each chunk drawn.
            opacity = isReceiving ? (0.3 + 0.7 * Math.round(10 * Model.progressOf(cell.node)) / 10).toFixed(2) : '1';
            if (before.opacity !== opacity || before.looks !== looks) {
              this.setAttribute('fill-opacity', opacity);
              this.setAttribute('aria-label', Model.nodeText(fleet, cell.node));
            }
          }
          this.drawn = {x: cell.x, y: cell.y, looks, revision: cell.node.revision, opacity};
          items.push({key: cell.key, x: cell.x, y: cell.y, element: this});
        });
  }

  // ---- pointer and keys

  const itemOf = (element) => element.closest('.node, .cell');
  const keyOf = (element) => d3.select(element).datum().key;

  function listen(element, fleet, ui) {
    element.addEventListener('click', (event) => {
      const item = itemOf(event.target);
      if (item) {
        focused = keyOf(item);
        ui.choose(focused);
      }
    });
    element.addEventListener('focusin', (event) => {
      const item = itemOf(event.target);
      if (item) focused = keyOf(item);
    });
    element.addEventListener('keydown', (event) => {
      const item = itemOf(event.target);
      if (!item) return;
      if (event.key === 'Enter' || event.key === ' ') {
        event.preventDefault();
        ui.choose(keyOf(item));
        return;
      }
      const next = neighbour(keyOf(item), event.key);
      if (!next) return;
      event.preventDefault();
      for (const one of items) one.element.setAttribute('tabindex', one === next ? '0' : '-1');
      focused = next.key;
      next.element.focus();
      next.element.scrollIntoView({block: 'nearest', inline: 'nearest'});
    });
    Dom.tipsOf(element, (target) => {
      const found = itemOf(target);
      if (!found) return '';
      const {node, isOrigin} = d3.select(found).datum();
      return isOrigin ? `origin ${node.name}\nversion ${node.version}\n${Model.bytesText(node.bytes_sent)} sent` :
                        Model.nodeText(fleet, node).replaceAll(', ', '\n');
    });
  }

  /// The nearest one in the direction of an arrow key, those straight ahead first.
  function neighbour(key, arrow) {
    const from = items.find((item) => item.key === key);
    const along = {ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1]}[arrow];
    if (!from || !along) return null;
    let best = null;
    for (const item of items) {
      const dx = item.x - from.x, dy = item.y - from.y;
      const ahead = dx * along[0] + dy * along[1];
      if (ahead <= 0) continue;
      const aside = Math.abs(dx * along[1]) + Math.abs(dy * along[0]);
      const far = ahead + 3 * aside;
      if (best === null || far < best.far) best = {far, item};
    }
    return best && best.item;
  }

  return {draw};
})();
