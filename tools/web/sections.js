// The page's sections but for its pictures: text, tiles and tables. Each takes the fleet and sets what has changed.
const Sections = (() => {
  'use strict';

  const {byId, make, setText, replace} = Dom;
  const tr = (...cells) => make('tr', {}, ...cells);
  const th = (text, kind = null) => make('th', {class: kind}, text);
  const td = (content, kind = null) => make('td', {class: kind}, content);

  function identity(fleet) {
    const origin = Model.originOf(fleet);
    const {head} = fleet;
    const key = JSON.stringify([origin && origin.name, origin && origin.address, head.model, head.run]);
    if (byId('identity').drawn === key) return;
    byId('identity').drawn = key;
    const parts = [];
    if (origin) parts.push(make('b', {}, origin.name), ` at ${origin.address}`);
    if (head.model) parts.push(' · model ', make('b', {}, head.model));
    if (head.run) parts.push(` · run ${head.run}`);
    replace(byId('identity'), ...parts);
  }

  function verdict(fleet, nowMs, liveness) {
    const {tone, title, detail} = Model.verdictOf(fleet, liveness);
    byId('verdict').dataset.tone = tone;
    setText(byId('verdict-title'), title);
    if (document.title !== `${title} – weightcast`) document.title = `${title} – weightcast`;
    const newest = Model.newestOf(fleet);
    const ago = newest ? ` Published ${Model.agoText((nowMs - newest.published_unix_ms) / 1000)}.` : '';
    setText(byId('verdict-detail'), detail + (newest && newest.state !== 'under way' && tone !== 'stale' ? ago : ''));
    const entry = newest && newest.state === 'under way' ? null : newest;
    const why = Model.whyOf(entry);
    if (byId('verdict-why').drawn === why) return;
    byId('verdict-why').drawn = why;
    if (why)
      replace(
          byId('verdict-why'), 'Slowest: ', make('b', {}, entry.slowest || ''),
          entry.slowest && entry.why ? ` – ${entry.why}.` : Model.sentence(why));
    else
      replace(byId('verdict-why'));
  }

  // ---- tiles

  // `shares`: [[class, part]] of a bar.
  const tile = (label, value, unit, more, shares = null) =>
      ({label, value, unit, more: (Array.isArray(more) ? more : [more]).filter(Boolean), shares});

  function tileElement({label, value, unit, more, shares}) {
    const bar = shares && make('dd', {class: 'shares', 'aria-hidden': 'true'}, ...shares.map(([name, count]) => {
                  const part = make('span', {class: name});
                  part.style.flex = String(count);
                  return part;
                }));
    return make(
        'div', {}, make('dt', {}, label), make('dd', {class: 'value'}, value, unit ? make('small', {}, unit) : null),
        bar, ...more.map((text) => make('dd', {class: 'more'}, text)));
  }

  function tiles(fleet, learner) {
    const entries = Model.publicationsOf(fleet);
    const counts = Model.countsOf(fleet);
    const workers = Model.workersOf(fleet);
    const shown = Model.STATES.filter((state) => counts[state.name] > 0);
    const shares = shown.map((state) => [`fill-${state.name}`, counts[state.name]]);
    const all = [tile(
        'Workers', workers.length.toLocaleString('en-GB'), '',
        shown.map((state) => `${counts[state.name]} ${Model.labelOf(fleet, state)}`).join(' · '), shares)];

    const timed = entries.filter((entry) => entry.t90_s !== null || entry.t50_s !== null);
    const last = timed.at(-1);
    const median = Model.quantileOf(timed.slice(-100).map((entry) => entry.t90_s ?? NaN), 0.5);
    all.push(tile(
        'T_bcast(0.9)', last ? Model.secondsText(last.t90_s) : '–', last ? `version ${last.version}` : '',
        last ?
            [
              `${Model.secondsText(last.t50_s)} for half, ${Model.secondsText(last.t100_s)} for all`,
              `${last.predicted_s > 0 ? `predicted ${Model.secondsText(last.predicted_s)} for all · ` : ''}median ${
                  Model.secondsText(median)}`
            ] :
                                        'no publication has reached nine in ten workers'));

    const sized = entries.filter((entry) => entry.payload_bytes > 0).at(-1);
    all.push(tile(
        'Travels to each worker', sized ? Model.bytesText(sized.payload_bytes) : '–',
        sized ? `${sized.kind === 'full' ? 'full' : sized.kind}` : '',
        sized ? `${Model.percentText(sized.payload_bytes / sized.snapshot_bytes)} of ${
                    Model.bytesText(sized.snapshot_bytes)}` :
                'nothing has been published'));

    const ended = entries.filter((entry) => entry.payload_bytes > 0 && entry.state !== 'under way').at(-1);
    const egress = Model.egressOf(ended);
    all.push(tile(
        'A worker costs the origin', egress ? Model.bytesText(egress.per_worker) : '–',
        egress ? `version ${ended.version}` : '',
        egress ?
            [
              `of its uplink: ${Model.bytesText(egress.sent)} in all, ${egress.copies.toFixed(1)} × the payload`,
              `one by one it would be ${Model.bytesText(egress.star)}`
            ] :
            'known when a publication has ended'));

    if (learner && learner.price_per_hour !== null) {
      const each = learner.price_per_hour / learner.active;
      all.push(tile('A worker costs', each.toFixed(2), 'an hour', [
        `${learner.price_per_hour.toFixed(2)} an hour for ${Model.countText(learner.active, 'active worker')}`,
        learner.cost_per_step !== null ? `${learner.cost_per_step.toPrecision(3)} a training step` : ''
      ]));
    }
    const {head} = fleet;
    all.push(tile(
        'Plan', head.topology || '–', head.predicted_s > 0 ? `predicts ${Model.secondsText(head.predicted_s)}` : '',
        planText(fleet)));
    // What is the same is not laid out again.
    const list = byId('tiles');
    const key = JSON.stringify(all);
    if (list.drawn === key) return;
    list.drawn = key;
    replace(list, ...all.map(tileElement));
  }

  function planText(fleet) {
    const {chains} = Model.chainsOf(fleet);
    if (chains.length === 0) return 'nobody is fed yet';
    const depth = Math.max(...chains.map((members) => members.at(-1).depth + 1));
    return `the origin feeds ${Model.countText(chains.length, 'worker')}; the furthest is ${depth} ${
        depth === 1 ? 'hop' : 'hops'} away`;
  }

  // ---- who needs somebody

  const ATTENTION_MAX = 12;
  const LEVELS = ['for information', 'notice', 'warning', 'needs somebody'];

  function attention(fleet, nowMs, choose, search) {
    const all = Model.attentionOf(fleet, nowMs / 1000);
    const list = all.slice(0, ATTENTION_MAX);
    const serious = new Set(all.filter((one) => one.level >= 2).flatMap((one) => one.names)).size;
    const key = JSON.stringify(all.slice(0, ATTENTION_MAX + 1));
    if (byId('attention').drawn === key) return;
    byId('attention').drawn = key;
    setText(byId('attention-note'), serious > 0 ? Model.countText(serious, 'node') : '');
    replace(
        byId('attention'),
        ...(list.length === 0 ?
                [make('li', {class: 'calm'}, 'Nobody: every worker is connected and well.')] :
                list.map(
                    (one) => make(
                        'li', {},
                        make(
                            'span',
                            {class: 'level', 'data-level': one.level, role: 'img', 'aria-label': LEVELS[one.level]},
                            one.level >= 2 ? '!' : 'i'),
                        make(
                            'button', {
                              type: 'button',
                              onclick: () => (one.names.length === 1 ? choose(one.key) : search(one.query || one.text))
                            },
                            one.names.length <= 3 ?
                                one.names.join(', ') :
                                `${one.names.slice(0, 2).join(', ')} and ${one.names.length - 2} more`),
                        make('span', {class: 'text'}, one.text)))),
        all.length > list.length ?
            make('li', {class: 'calm'}, `and ${all.length - list.length} more, in the table of workers`) :
            null);
  }

  function events(list) {
    const key = JSON.stringify(list);
    if (byId('events').drawn === key) return;
    byId('events').drawn = key;
    const time = (ms) => Model.clockText(ms).slice(0, 5);
    replace(
        byId('events'),
        ...(list.length === 0 ?
                [make('li', {class: 'calm'}, 'Nothing has happened yet.')] :
                list.map(
                    ({ms, level, text}) => make(
                        'li', {'data-level': level},
                        make('time', {datetime: new Date(ms).toISOString(), title: new Date(ms).toLocaleString()}, time(ms)),
                        make('span', {class: 'text'}, text)))));
  }

  function detail(fleet, key, nowMs) {
    const node = fleet.nodes.get(key);
    byId('detail-panel').hidden = !node;
    if (!node) return;
    setText(byId('detail-title'), node.name);
    const link = Model.linkOf(fleet, node);
    const rate = (value) => (value > 0 ? Model.rateText(value) : 'not measured');
    const facts = [
      ['State', `${node.state}: ${node.role === 'origin' ? 'publishes' : Model.STATE_TEXT[node.state] || ''}`],
      [
        'Version',
        `${node.version || '–'}${
            node.payload ? `, came by ${node.payload}, ${Model.bytesText(node.payload_bytes)}` : ''}`
      ],
      Model.isReceiving(node) ?
          ['Receiving', `${Model.percentText(Model.progressOf(node))} of ${node.receiving_version}`] :
          null,
      node.parent ?
          [
            'Fed by',
            node.parent + (link ? `, ${link.live ? 'at' : 'last at'} ${Model.rateText(link.bytes_per_s)}` : '')
          ] :
                                  null,
      node.children.length > 0 ?
          [
            'Feeds',
            node.children.length > 12 ?
                `${node.children.slice(0, 12).join(', ')} and ${node.children.length - 12} more` :
                node.children.join(', ')
          ] :
          null,
      ['Links', `up ${rate(node.uplink_bytes_per_s)}, down ${rate(node.downlink_bytes_per_s)}`],
      ['Bytes', `${Model.bytesText(node.bytes_received)} received, ${Model.bytesText(node.bytes_sent)} sent`],
      node.role === 'worker' ?
          [
            'Score',
            `${node.score.toFixed(2)}, ${node.standing || 'no standing'}${
                Model.STANDING_TEXT[node.standing] ? `: ${Model.STANDING_TEXT[node.standing]}` : ''}`
          ] :
          null,
      ['Address', node.address || '–'],
      node.versions_in ?
          [
            'Versions',
            `in ${node.versions_in}: ${node.versions_in_why}; ${
                Model.bytesText(node.disk_bytes_written)} written to disks`
          ] :
          null,
      ...Model.remarksOf(node, nowMs / 1000).map((remark) => ['Remark', remark.text]),
    ].filter(Boolean);
    replace(byId('detail'), ...facts.flatMap(([name, text]) => [make('dt', {}, name), make('dd', {}, text)]));
  }

  // ---- versions

  function versions(fleet) {
    const spread = Model.spreadOf(fleet).slice(0, 6);
    const most = Math.max(1, ...spread.map((one) => one.workers));
    setText(byId('versions-note'), `newest: ${fleet.head.latest_version || 'none'}`);
    replace(
        byId('spread'),
        make(
            'table', {}, make('caption', {}, 'In use by'),
            make(
                'tbody', {},
                ...spread.map(
                    (one) => tr(
                        td(String(one.version || 'none'), 'number'),
                        td(make(
                            'meter', {min: 0, max: most, value: one.workers, 'aria-label': `${one.workers} workers`})),
                        td(Model.countText(one.workers, 'worker'), 'number'))))));
    const rows = [...fleet.versions].reverse().slice(0, 6);
    const table = byId('versions');
    table.hidden = rows.length === 0;
    if (rows.length === 0) return;
    replace(table.tHead, tr(th('At the origin', 'number'), th('Kind'), th('Size', 'number'), th('On disk')));
    replace(
        table.tBodies[0],
        ...rows.map(
            (row) =>
                tr(td(`${row.version}${row.current ? ' *' : ''}`, 'number'), td(row.kind),
                   td(Model.bytesText(row.snapshot_bytes), 'number'), td(row.durable ? 'durable' : 'not synced'))));
  }

  // ---- one publication as a table

  function waterfallTable(rows) {
    const names = Model.PHASES.map((phase) => phase.name)
                      .filter((name) => rows.some((row) => row.segments.some((segment) => segment.phase === name)));
    const lasted = (row, name) => {
      const segment = row.segments.find((one) => one.phase === name);
      return segment ? (segment.to - segment.from).toFixed(3) : '';
    };
    return make(
        'details', {}, make('summary', {class: 'note'}, 'As a table'),
        make(
            'div', {class: 'scroll'},
            make(
                'table', {}, make('caption', {class: 'unseen'}, 'Seconds of each phase'),
                make(
                    'thead', {},
                    tr(th('Node'),
                       ...names.map(
                           (name) => make(
                               'th', {class: 'number', title: Model.PHASE[name].text},
                               `${Model.PHASE[name].label}, s`)),
                       th('installed, s', 'number'), th('Fed by'), th('Remark'))),
                make(
                    'tbody', {},
                    ...rows.map(
                        (row) =>
                            tr(td(row.name), ...names.map((name) => td(lasted(row, name), 'number')),
                               td(row.who === 'origin' || row.end === null ? '' : row.end.toFixed(3), 'number'),
                               td(row.fed_by), td(row.remark, 'text')))))));
  }

  // ---- workers

  const WORKER_COLUMNS = [
    ['name', 'Worker'],
    ['state', 'State'],
    ['version', 'Version', true],
    ['progress', 'Progress'],
    ['parent', 'Fed by'],
    ['link', 'Its link', true],
    ['uplink', 'Uplink', true],
    ['sent', 'Sent', true],
    ['score', 'Score', true],
    [null, 'Why'],
  ];

  function workerHead(ui, sort) {
    replace(
        byId('worker-table').tHead,
        make(
            'tr', {},
            ...WORKER_COLUMNS.map(
                ([column, label, isNumber]) => make(
                    'th', {
                      class: isNumber ? 'number' : null,
                      scope: 'col',
                      'aria-sort': column && column === ui.column ? (ui.descending ? 'descending' : 'ascending') : null,
                    },
                    column ? make(
                                 'button', {type: 'button', onclick: () => sort(column)},
                                 `${label}${column === ui.column ? (ui.descending ? ' ↓' : ' ↑') : ''}`) :
                             label))));
  }

  function workers(fleet, rows, ui, most, choose) {
    const shown = rows.slice(0, most);
    const total = Model.workersOf(fleet).length;
    setText(
        byId('workers-note'),
        rows.length === total ? Model.countText(total, 'worker') :
                                `${rows.length} of ${Model.countText(total, 'worker')}`);
    const more = byId('workers-more');
    more.hidden = rows.length <= most;
    setText(more, `Show ${Math.min(200, rows.length - most)} more of ${rows.length - most}`);
    const body = d3.select(byId('worker-table').tBodies[0]);
    body.selectAll('tr')
        .data(shown, (row) => row.key)
        .join((enter) => {
          const entered = enter.append('tr');
          const name = entered.append('td').append('button').attr('type', 'button').attr('class', 'name');
          name.on('click', (row) => choose(row.key));
          const state = entered.append('td').append('span').attr('class', 'state');
          state.append('span').attr('aria-hidden', 'true');
          state.append('span').attr('class', 'word');
          for (const kind of ['number', '', '', 'number', 'number', 'number', 'number', 'text'])
            entered.append('td').attr('class', kind);
          return entered;
        })
        .order()
        .each(function({key, node, remarks}) {
          const looks = key === ui.worker ? 'chosen' : '';
          if (this.className !== looks) this.className = looks;
          const carried = Model.linkOf(fleet, node);
          const rate = carried ? Model.rateText(carried.bytes_per_s) : '';
          if (this.revision === node.revision && this.rate === rate) return;
          Object.assign(this, {revision: node.revision, rate});
          const [name, state, version, progress, parent, link, uplink, sent, score, why] = this.cells;
          setText(name.firstChild, node.name);
          state.firstChild.firstChild.className = `swatch fill-${node.state}`;
          state.title = Model.STATE_TEXT[node.state] || '';
          setText(state.firstChild.lastChild, node.state);
          setText(version, node.version > 0 ? String(node.version) : '–');
          if (Model.isReceiving(node)) {
            if (!progress.firstElementChild) replace(progress, make('progress', {max: 1}), make('span', {}));
            progress.firstElementChild.value = Model.progressOf(node);
            progress.firstElementChild.setAttribute('aria-label', `version ${node.receiving_version}`);
            setText(
                progress.lastElementChild,
                ` ${Model.percentText(Model.progressOf(node))} of ${node.receiving_version}`);
          } else if (progress.firstChild) {
            replace(progress);
          }
          setText(parent, node.parent);
          setText(link, rate);
          setText(uplink, node.uplink_bytes_per_s > 0 ? Model.rateText(node.uplink_bytes_per_s) : '');
          setText(sent, Model.bytesText(node.bytes_sent));
          setText(score, node.score > 0 ? node.score.toFixed(2) : '');
          setText(why, remarks.map((remark) => remark.text).join('; '));
        });
  }

  // ---- the learner

  const orDash = (value, text) => (value === null ? '–' : text(value));

  function learnerTiles(learner) {
    const percent = (value) => `${(100 * value).toFixed(1)} %`;
    const all = [
      [
        'Reward', orDash(learner.reward, (value) => value.toFixed(3)),
        learner.step !== null ? `mean of step ${learner.step}` : 'no step yet'
      ],
      [
        'Staleness', orDash(learner.staleness, (value) => `${value.toFixed(1)} steps`),
        orDash(learner.staleness_max, (value) => `at most ${value.toFixed(0)}`)
      ],
      [
        'Bubble', orDash(learner.bubble, percent),
        learner.bubble_predicted !== null ? `at most ${percent(learner.bubble_predicted)} predicted` :
                                            'of its time it waited'
      ],
      [
        'Cost per step', orDash(learner.cost_per_step, (value) => value.toPrecision(3)),
        orDash(learner.cost_total, (value) => `${value.toPrecision(3)} so far`)
      ],
      [
        'Rollouts', `${learner.rollouts_per_s.toFixed(1)} /s`,
        learner.mu_min !== null ? `${learner.mu_min.toFixed(1)} /s keep it busy` : 'by the active workers'
      ],
      ['Active', String(learner.active), `of ${Model.countText(learner.workers.length, 'worker')}`],
      [
        'A step takes', orDash(learner.step_s, Model.secondsText),
        learner.t_bcast !== null ? `T_bcast ${Model.secondsText(learner.t_bcast)} to engines` : ''
      ],
    ];
    replace(
        byId('learner-tiles'),
        ...all.map(
            ([label, value, more]) => make(
                'div', {}, make('dt', {}, label), make('dd', {class: 'value'}, value),
                make('dd', {class: 'more'}, more))));
    const table = byId('learner-workers');
    const figures = ['Version', 'Rollouts/s', 'Under way', 'Admitted', 'Price/h'];
    replace(
        table.tHead, tr(th('Worker'), th('Rolls out'), ...figures.map((text) => th(text, 'number')), th('Why not')));
    replace(
        table.tBodies[0],
        ...learner.workers.slice(0, 100).map(
            (row) =>
                tr(td(row.name),
                   td(row.silent     ? 'silent' :
                          row.active ? 'yes' :
                          row.wanted ? 'not yet' :
                                       'waits'),
                   td(String(row.version), 'number'), td(row.silent ? '–' : row.rollouts_per_s.toFixed(1), 'number'),
                   td(String(row.under_way), 'number'), td(row.admitted.toLocaleString('en-GB'), 'number'),
                   td(row.price_per_hour > 0 ? row.price_per_hour.toFixed(2) : '–', 'number'),
                   td(row.fault || (row.silent ? `silent for ${Model.secondsText(row.silent_s)}` : ''), 'text'))));
  }

  // ---- what if

  function plans(reply) {
    const table = byId('what-if-table');
    const best = Math.min(...reply.cases.map((one) => one.t100_s));
    const figures = ['T_bcast(0.5)', 'T_bcast(0.9)', 'T_bcast(1.0)', 'The origin sends', 'Hops'];
    replace(table.tHead, tr(th('Topology'), ...figures.map((text) => th(text, 'number'))));
    replace(
        table.tBodies[0],
        ...reply.cases.map(
            (one) => make(
                'tr', {class: one.t100_s === best ? 'best' : null}, td(one.topology),
                ...[one.t50_s, one.t90_s, one.t100_s].map((seconds) => td(Model.secondsText(seconds), 'number')),
                td(`${Model.bytesText(one.origin_egress_bytes)} (${
                       (one.origin_egress_bytes / reply.payload_bytes).toFixed(1)} ×)`,
                   'number'),
                td(String(one.depth), 'number'))));
  }

  return {
    identity,
    verdict,
    tiles,
    attention,
    events,
    detail,
    versions,
    waterfallTable,
    workerHead,
    workers,
    learnerTiles,
    plans
  };
})();
