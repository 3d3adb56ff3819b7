// Wires the page: takes what the source tells, and draws what has changed and can be seen, once a frame at most.
(() => {
  'use strict';

  const {byId, make, setText, replace} = Dom;
  const ROWS_FIRST = 60, ROWS_MORE = 200, BARS_FIRST = 16, BARS_MOST = 400;
  const LEARNER_POINTS_MAX = 1000;
  // While a publication is under way; what 500 workers tell of it takes a moment to read.
  const coursesEveryMs = (workers) => (workers <= 100 ? 1000 : 5000);
  const ENGINES_MS_MAX = 15_000;

  const source = Source.open();
  const fleet = Model.emptyFleet();
  let nowMs = 0;  // by the daemon's clock
  let heardAt = performance.now();
  let connection = 'live', silentS = 0, quietSince = performance.now();
  let learner = null, learnerAt = 0;
  const learnerPast = [];     // {step, reward, staleness, bubble}
  const ui = {
    worker: null,
    found: null,
    query: '',
    state: '',
    column: 'name',
    descending: false,
    version: null,
    rows: ROWS_FIRST,
    bars: BARS_FIRST,
    choose
  };
  let courses = {version: null, reply: null, askedAt: -Infinity, isAsking: false, error: ''};

  // ---- drawing

  // Of each section: what it was drawn from. It is drawn again when that has changed, and not while it is out of sight.
  const sections = {
    top: {
      element: 'verdict',
      of: () => [fleet.nodesRevision, fleet.publicationsRevision, learnerAt, Math.floor(nowMs / 1000), shownState],
      draw: drawTop
    },
    chains:
        {element: 'chains', of: () => [fleet.nodesRevision, ui.worker, ui.query, ui.state, width()], draw: drawChains},
    attention: {
      element: 'attention',
      of: () => [fleet.nodesRevision, ui.worker, Math.floor(nowMs / 5000)],
      draw: drawAttention
    },
    events: {
      element: 'events',
      of: () => [fleet.nodesRevision, fleet.endedRevision, fleet.events.length, shownState],
      draw: drawEvents
    },
    versions:
        {element: 'spread', of: () => [fleet.nodesRevision, fleet.versions], draw: () => Sections.versions(fleet)},
    learner: {element: 'learner-panel', of: () => [learnerAt, width()], draw: drawLearner},
    waterfall: {
      element: 'waterfall',
      of: () =>
          [fleet.endedRevision, installed(), ui.version, ui.bars, courses.reply, courses.error, width(), runningTick()],
      draw: drawWaterfall
    },
    history: {element: 'history', of: () => [fleet.endedRevision, chosenVersion(), width()], draw: drawHistory},
    workers: {
      element: 'worker-table',
      of: () => [fleet.nodesRevision, ui.worker, ui.query, ui.state, ui.column, ui.descending, ui.rows],
      draw: drawWorkers
    },
  };
  let pageWidth = document.documentElement.clientWidth;
  const width = () => pageWidth;
  const seen = new Set();
  let isDue = false, isUrgent = false, drawnAt = -Infinity, cost = 0;

  // What the fleet tells is drawn so seldom that drawing takes a small share of a core, however large the fleet is.
  const COST_SHARE = 40, LATE_MS_MAX = 2000;

  /// For what a person does: with the next frame.
  function due() {
    isUrgent = true;
    requestAnimationFrame(draw);
  }

  function dueSoon() {
    if (isDue || isUrgent) return;
    isDue = true;
    setTimeout(
        () => requestAnimationFrame(draw),
        Math.min(LATE_MS_MAX, Math.max(0, drawnAt + COST_SHARE * cost - performance.now())));
  }

  function draw() {
    if (!isDue && !isUrgent) return;
    isDue = isUrgent = false;
    const begin = performance.now();
    drawSections();
    drawnAt = performance.now();
    // Layout and paint take about as much again.
    cost = 0.7 * cost + 0.3 * 2 * (drawnAt - begin);
  }

  function drawSections() {
    for (const [name, section] of Object.entries(sections)) {
      if (name !== 'learner' && !seen.has(name)) continue;
      const of = JSON.stringify(section.of().map((part) => (part && typeof part === 'object' ? stampOf(part) : part)));
      if (of === section.drawn) continue;
      section.drawn = of;
      section.draw();
    }
  }

  const stamps = new WeakMap();
  let stamp = 0;
  function stampOf(object) {
    if (!stamps.has(object)) stamps.set(object, ++stamp);
    return stamps.get(object);
  }

  function watchSight() {
    const names = new Map();
    const observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting)
          seen.add(names.get(entry.target));
        else
          seen.delete(names.get(entry.target));
      }
      due();
    }, {rootMargin: '150px'});
    for (const [name, section] of Object.entries(sections)) {
      const element = byId(section.element).closest('section, main');
      const box = name === 'versions' || name === 'attention' || name === 'events' || name === 'chains' ?
          byId(section.element).closest('.panel') :
          element;
      names.set(box, name);
      observer.observe(box);
    }
    new ResizeObserver(() => {
      pageWidth = document.documentElement.clientWidth;
      due();
    }).observe(document.documentElement);
  }

  function drawTop() {
    Sections.identity(fleet);
    Sections.verdict(fleet, nowMs, liveness());
    Sections.tiles(fleet, learner);
    followPlan();
  }

  function drawChains() {
    // What the search leaves out is dimmed.
    ui.found = ui.query || ui.state ? new Set(Model.workerRowsOf(fleet, ui, nowMs / 1000).map((row) => row.key)) : null;
    const counts = Model.countsOf(fleet);
    Dom.legend(
        byId('chains-legend'),
        Model.STATES.filter((state) => counts[state.name] > 0)
            .map((state) => ({
                   swatch: `fill-${state.name}`,
                   label: `${Model.labelOf(fleet, state)} ${counts[state.name]}`,
                   title: state.text
                 })));
    setText(
        byId('chains-note'),
        fleet.head.topology && fleet.head.latest_version ?
            `${fleet.head.topology}, version ${fleet.head.latest_version}` :
            '');
    Chains.draw(byId('chains'), fleet, ui);
  }

  /// Whether what is shown still holds.
  const liveness = () => {
    const quiet_ms = source.isRecording ? 0 : performance.now() - quietSince;
    return Model.livenessOf(
        {connection, quiet_ms, silent_s: silentS, since_ms: Date.now() - quiet_ms - 1000 * silentS});
  };

  let shownState = '';
  function drawConnection() {
    const now = liveness();
    const element = byId('connection');
    element.dataset.state = now.state;
    document.body.dataset.state = now.state;
    setText(element.querySelector('.text'), now.text);
    if (now.state === shownState) return;
    const isGone = now.state === 'lost' || now.state === 'silent';
    const wasGone = shownState === 'lost' || shownState === 'silent';
    if (isGone && !wasGone && shownState) {
      fleet.events.push({ms: Date.now() - 1000 * now.age_s, level: 3, text: 'the origin does not answer'});
    } else if (wasGone && !isGone) {
      fleet.events.push({ms: Date.now(), level: 0, text: 'the origin answers again'});
    }
    shownState = now.state;
    due();
  }

  function drawEvents() { Sections.events(Model.eventsOf(fleet)); }

  function drawAttention() {
    Sections.attention(fleet, nowMs, choose, search);
    Sections.detail(fleet, ui.worker, nowMs);
  }

  function drawWorkers() { Sections.workers(fleet, Model.workerRowsOf(fleet, ui, nowMs / 1000), ui, ui.rows, choose); }

  // ---- publications

  // Bars of what is under way grow.
  const runningTick = () =>
      (fleet.publications.get(chosenVersion())?.state === 'under way' ? Math.floor(nowMs / 500) : 0);
  const installed = () => fleet.publications.get(chosenVersion())?.installed;
  const chosenVersion = () => ui.version ?? (Model.newestOf(fleet) || {version: null}).version;

  function drawHistory() {
    const entries = Model.historyOf(fleet);
    Dom.legend(byId('history-legend'), [
      {swatch: 'line line-t50', label: 'T_bcast(0.5)'}, {swatch: 'line line-t90', label: '0.9'},
      {swatch: 'line line-t100', label: '1.0'}, {swatch: 'line dash line-predicted', label: 'predicted 1.0'},
      {swatch: 'fill-payload', label: 'payload'}, {swatch: 'fill-sent', label: 'sent by the origin'}
    ]);
    setText(byId('history-note'), entries.length > 0 ? `the last ${entries.length}` : 'none yet');
    Charts.history(byId('history'), entries, chosenVersion(), chooseVersion);
    const points = Model.forecastsOf(entries);
    const missed = points.filter((point) => point.missed).length;
    const counted = `${missed} of ${points.length} took half as much again, and half a second. `;
    const measured = 'Measured is T_bcast(1.0) less what the origin took to make the payload.';
    setText(byId('forecast-note'), points.length > 0 ? counted + measured : '');
    Charts.forecast(byId('forecast'), points, chosenVersion(), chooseVersion);
  }

  function chooseVersion(version) {
    ui.version = version;
    ui.bars = BARS_FIRST;
    due();
  }

  function step(by) {
    const entries = Model.publicationsOf(fleet);
    const at = entries.findIndex((entry) => entry.version === chosenVersion());
    const next = entries[at + by];
    if (next) chooseVersion(at + by === entries.length - 1 ? null : next.version);
  }

  /// Asks for the workers of the chosen publication: again while it is under way, when it has changed, and for as long
  /// after that as engines may need to take it.
  async function askCourses(entry) {
    const key = `${entry.version}/${entry.state}/${entry.installed}`;
    const since = courses.key === key ? courses.since : performance.now();
    const mayChange = entry.state === 'under way' || performance.now() - since < ENGINES_MS_MAX;
    if (courses.isAsking || courses.key === key && !mayChange) return;
    if (courses.version === entry.version && performance.now() - courses.askedAt < coursesEveryMs(entry.workers)) {
      askAgain(coursesEveryMs(entry.workers));
      return;
    }
    courses = {
      version: entry.version,
      key,
      since,
      reply: courses.version === entry.version ? courses.reply : null,
      askedAt: performance.now(),
      isAsking: true,
      error: ''
    };
    try {
      courses.reply = await source.publication(entry.version);
      Model.takeCourses(fleet, courses.reply.workers);
    } catch (error) {
      courses.error = error.message;
    }
    courses.isAsking = false;
    dueSoon();
    if (mayChange) askAgain(coursesEveryMs(entry.workers));
  }

  let isAskedAgain = false;
  function askAgain(ms) {
    if (isAskedAgain) return;
    isAskedAgain = true;
    setTimeout(() => {
      isAskedAgain = false;
      sections.waterfall.drawn = '';
      dueSoon();
    }, ms);
  }

  function drawWaterfall() {
    const entries = Model.publicationsOf(fleet);
    const version = chosenVersion();
    const entry = fleet.publications.get(version);
    const select = byId('publication');
    const listed = entries.slice(-300).reverse();
    const key = listed.map((one) => `${one.version}${one.state}`).join();
    if (select.drawn !== key) {
      select.drawn = key;
      replace(
          select, make('option', {value: ''}, 'newest'),
          ...listed.map(
              (one) => make(
                  'option', {value: one.version}, `${one.version} – ${one.state}, ${Model.secondsText(one.t100_s)}`)));
    }
    select.value = ui.version === null ? '' : String(ui.version);
    const at = entries.indexOf(entry);
    byId('publication-back').disabled = at <= 0;
    byId('publication-on').disabled = at < 0 || at === entries.length - 1;
    if (!entry) {
      setText(byId('waterfall-note'), 'No publication since the origin was started.');
      return;
    }
    askCourses(entry);
    setText(
        byId('waterfall-note'),
        `version ${entry.version}: ${entry.state}, at ${entry.installed} of ${
            Model.countText(entry.workers, 'worker')}`);
    replace(
        byId('waterfall-why'),
        ...(Model.whyOf(entry) ?
                [
                  'Slowest: ', make('b', {}, entry.slowest),
                  ` – ${entry.why || 'it says nothing of its time'}${entry.cause ? ` (${entry.cause})` : ''}`
                ] :
                []));
    const reply = courses.version === entry.version ? courses.reply : null;
    const holder = byId('waterfall');
    if (!reply) {
      if (courses.error) replace(holder, make('p', {class: 'note'}, courses.error));
      return;
    }
    const isRunning = entry.state === 'under way';
    const running_s = Math.max(entry.elapsed_s, (nowMs - entry.published_unix_ms) / 1000);
    // A recording has the whole of each.
    const whole = isRunning && !source.isRecording ?
        Model.waterfallOf(entry, reply.workers, running_s, Model.workersOf(fleet)) :
        Model.waterfallOf(entry, reply.workers);
    const rows = source.isRecording && isRunning ? Model.rowsUntil(whole, running_s) : whole;
    const shown = rows.slice(0, 1 + ui.bars);
    let chart = holder.querySelector('.chart');
    if (!chart) {
      chart = make('div', {class: 'chart'});
      replace(holder, chart);
    }
    Charts.waterfall(chart, shown, entry);
    const wasOpen = holder.querySelector('details')?.open ?? false;
    holder.querySelector('details')?.remove();
    const table = Sections.waterfallTable(shown);
    table.open = wasOpen;
    holder.append(table);
    const used = Model.PHASES.filter(
        (phase) => rows.some((row) => row.segments.some((segment) => segment.phase === phase.name)));
    Dom.legend(
        byId('waterfall-legend'),
        used.map((phase) => ({swatch: `fill-${phase.name}`, label: phase.label, title: phase.text})));
    const more = byId('waterfall-more');
    const left = Math.max(rows.length - shown.length, reply.workers_total - (shown.length - 1));
    more.hidden = left <= 0;
    more.disabled = rows.length <= shown.length;
    setText(
        more,
        rows.length > shown.length ? `Show more: ${left} others had it earlier` : `${left} others had it earlier`);
  }

  // ---- the learner

  function handleLearner(status, atMs) {
    const next = Model.learnerOf(status);
    learnerAt = atMs;
    learner = next;
    byId('learner-panel').hidden = !next && learnerPast.length === 0;
    if (next) {
      const last = learnerPast.at(-1);
      if (next.step !== null && (!last || next.step > last.step)) {
        learnerPast.push({step: next.step, reward: next.reward, staleness: next.staleness, bubble: next.bubble});
        if (learnerPast.length > LEARNER_POINTS_MAX) learnerPast.shift();
      }
    }
    due();
  }

  function drawLearner() {
    if (byId('learner-panel').hidden) return;
    setText(byId('learner-note'), learner ? `version ${learner.version}` : 'does not answer');
    if (!learner) return;
    Sections.learnerTiles(learner);
    const points = (name, factor = 1) =>
        learnerPast.filter((one) => one[name] !== null).map((one) => [one.step, factor * one[name]]);
    const holder = byId('learner-charts');
    if (holder.children.length === 0) replace(holder, make('div', {}), make('div', {}));
    Charts.lines(holder.children[0], [{name: 'chain', label: 'reward', points: points('reward')}], {
      xLabel: 'training step',
      yLabel: 'Mean reward',
      yText: d3.format('.2f'),
      label: 'Mean reward by training step'
    });
    Charts.lines(holder.children[1], [{name: 'striped', label: 'lag', points: points('staleness')}], {
      xLabel: 'training step',
      yLabel: 'Training steps by which rollouts lag, mean',
      yText: d3.format('.1f'),
      label: 'Staleness by training step'
    });
  }

  // ---- what if

  let planned = '', isTouched = false;

  /// Asks anew about the fleet as it is, when that has changed, until a person asks about another one.
  function followPlan() {
    const {workers, bytes, uplink, peer_uplink, peer_downlink} = Model.fleetFiguresOf(fleet);
    const key = JSON.stringify(
        [workers, bytes, ...[uplink, peer_uplink, peer_downlink].map((rate) => rate && rate.toPrecision(2))]);
    if (isTouched || key === planned || fleet.nodes.size === 0 || source.isRecording && planned) return;
    planned = key;
    resetPlan();
  }

  const field = (name) => byId('what-if').elements[name];
  const round3 = (value) => Number(value.toPrecision(3));

  function resetPlan() {
    const figures = Model.fleetFiguresOf(fleet);
    field('workers').value = Math.max(1, figures.workers);
    field('size').value = round3((figures.bytes ?? 16 * 2 ** 30) / 2 ** 20);
    field('uplink').value = round3((figures.uplink ?? 125e6) * 8 / 1e6);
    field('peer_downlink').value = round3((figures.peer_downlink ?? 125e6) * 8 / 1e6);
    field('peer_uplink').value = round3((figures.peer_uplink ?? figures.peer_downlink ?? 125e6) * 8 / 1e6);
    field('delay').value = 0.5;
    plan();
  }

  async function plan() {
    const form = byId('what-if');
    const message = byId('what-if-message');
    if (!form.checkValidity()) {
      const bad = [...form.elements].find((element) => !element.validity.valid);
      setText(message, `${bad.closest('label').firstChild.textContent.trim()}: ${bad.validationMessage}`);
      bad.focus();
      return;
    }
    const workers = Number(field('workers').value);
    const counts = [
      ...new Set([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
                     .filter((count) => count < 2 * workers)
                     .concat(workers, Math.min(10000, workers + 1)))
    ].sort((a, b) => a - b);
    const query = {
      workers: String(workers),
      sweep: counts.join(),
      size_bytes: String(Math.round(Number(field('size').value) * 2 ** 20)),
      uplink_bps: String(Number(field('uplink').value) * 1e6),
      peer_bps: String(Number(field('peer_downlink').value) * 1e6),
      peer_uplink_bps: String(Number(field('peer_uplink').value) * 1e6),
      delay_ms: field('delay').value,
    };
    setText(message, 'Asking the daemon …');
    try {
      const reply = await source.plan(query);
      setText(message, '');
      Sections.plans(reply);
      const best = reply.cases.reduce((a, b) => (b.t100_s < a.t100_s ? b : a));
      const at = (count) => reply.sweep.find((one) => one.workers === count);
      const [here, next] = [at(workers), at(workers + 1)];
      if (here && next) {
        const added = Math.max(0, next.t100_s - here.t100_s),
              sent = next.origin_egress_bytes - here.origin_egress_bytes;
        replace(
            byId('what-if-cost'), make('b', {}, 'One more worker'),
            ` adds ${
                added < 0.0005  ? 'less than a millisecond' :
                    added < 0.1 ? `${(added * 1000).toFixed(1)} ms` :
                                  Model.secondsText(added)} to T_bcast(1.0) and ${
                sent > 0 ? Model.bytesText(sent) : 'nothing'} to what the origin sends.`);
      }
      const bestOf = {name: 'chain', label: 'best', points: reply.sweep.map((one) => [one.workers, one.t100_s])};
      const star = {name: 'star', label: 'star', points: reply.sweep.map((one) => [one.workers, one.star_s])};
      Charts.lines(byId('what-if-chart'), [bestOf, star], {
        height: 190,
        log: true,
        xLabel: 'workers',
        yLabel: 'T_bcast(1.0) with the best topology, and with a star',
        xText: (count) =>
            (counts.includes(count) &&
                     (Number.isInteger(Math.log2(count)) && Math.log2(count) % 2 === 0 || count === workers) ?
                 String(count) :
                 ''),
        yText: Charts.shortSeconds,
        label: `Predicted T_bcast(1.0) by the number of workers; at ${workers}: ${Model.secondsText(best.t100_s)}`
      });
    } catch (error) {
      setText(message, Model.sentence(error.message));
    }
  }

  // ---- the person

  function choose(key) {
    ui.worker = ui.worker === key ? null : key;
    due();
    if (ui.worker)
      requestAnimationFrame(() => requestAnimationFrame(() => byId('detail-panel').scrollIntoView({block: 'nearest'})));
  }

  /// Shows those in the table whose row has all words of `text`.
  function search(text) {
    ui.query = byId('query').value = text;
    ui.rows = ROWS_FIRST;
    due();
    byId('workers').scrollIntoView();
  }

  function sort(column) {
    ui.descending =
        ui.column === column ? !ui.descending : column !== 'name' && column !== 'parent' && column !== 'state';
    ui.column = column;
    Sections.workerHead(ui, sort);
    due();
  }

  function listen() {
    Sections.workerHead(ui, sort);
    replace(
        byId('state'), make('option', {value: ''}, 'all states'),
        ...Model.STATES.map((state) => make('option', {value: state.name}, state.name)));
    byId('query').addEventListener('input', (event) => {
      ui.query = event.target.value;
      ui.rows = ROWS_FIRST;
      due();
    });
    byId('state').addEventListener('change', (event) => {
      ui.state = event.target.value;
      ui.rows = ROWS_FIRST;
      due();
    });
    byId('workers-more').addEventListener('click', () => {
      ui.rows += ROWS_MORE;
      due();
    });
    byId('waterfall-more').addEventListener('click', () => {
      ui.bars = Math.min(BARS_MOST, ui.bars * 4);
      due();
    });
    byId('publication')
        .addEventListener(
            'change', (event) => chooseVersion(event.target.value === '' ? null : Number(event.target.value)));
    byId('publication-back').addEventListener('click', () => step(-1));
    byId('publication-on').addEventListener('click', () => step(1));
    byId('detail-close').addEventListener('click', () => choose(ui.worker));
    byId('what-if').addEventListener('input', () => {
      isTouched = true;
    });
    byId('what-if').addEventListener('submit', (event) => {
      event.preventDefault();
      isTouched = true;
      plan();
    });
    byId('what-if').addEventListener('reset', (event) => {
      event.preventDefault();
      isTouched = false;
      resetPlan();
    });
    document.addEventListener('keydown', (event) => {
      if (event.key === '/' && !event.target.matches('input, select, textarea')) {
        event.preventDefault();
        byId('query').focus();
      }
      if (event.key === 'Escape') Dom.hideTip();
    });
  }

  function theme() {
    const dark = matchMedia('(prefers-color-scheme: dark)');
    let own = null;
    try {
      own = localStorage.getItem('weightcast-theme');
    } catch { /* a file may have no storage */
    }
    const apply = () => {
      document.documentElement.dataset.theme = own || (dark.matches ? 'dark' : 'light');
    };
    dark.addEventListener('change', apply);
    byId('theme').addEventListener('click', () => {
      own = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
      try {
        localStorage.setItem('weightcast-theme', own);
      } catch { /* then it holds until the page is left */
      }
      apply();
    });
    apply();
  }

  // ---- the recording

  function replay() {
    const range = byId('replay-at'), play = byId('replay-play'), first = source.atMs(0),
          last = source.atMs(source.length - 1);
    let playing = null;
    byId('replay').hidden = false;
    range.max = String(Math.max(1, last - first));
    range.value = range.max;
    const clock = (ms) => new Date(ms).toLocaleTimeString('en-GB');
    const show = () => {
      const ms = first + Number(range.value);
      const {told, nodesRevision, membersRevision, publicationsRevision, endedRevision} = fleet;
      Object.assign(
          fleet, Model.emptyFleet(), {told, nodesRevision, membersRevision, publicationsRevision, endedRevision});
      learnerPast.length = 0;
      source.show(listener, source.indexAt(ms));
      nowMs = ms;
      setText(
          byId('replay-time'),
          `${clock(ms)}, ${((ms - first) / 1000).toFixed(0)} of ${((last - first) / 1000).toFixed(0)} s`);
      range.setAttribute('aria-valuetext', `${((ms - first) / 1000).toFixed(0)} seconds`);
      due();
    };
    const stop = () => {
      if (playing !== null) clearInterval(playing);
      playing = null;
      setText(play, 'Play');
    };
    range.addEventListener('input', () => {
      stop();
      show();
    });
    play.addEventListener('click', () => {
      if (playing !== null) return stop();
      if (Number(range.value) >= last - first) range.value = '0';
      setText(play, 'Pause');
      playing = setInterval(() => {
        range.value = String(Number(range.value) + 250);
        show();
        if (Number(range.value) >= last - first) stop();
      }, 250);
    });
    show();
  }

  const listener = {
    handleState(state) {
      Model.applyState(fleet, state);
      heard();
    },
    handleChange(change) {
      Model.applyChange(fleet, change);
      heard();
    },
    handleLearner,
    handleHeartbeat(beat) { silentS = beat.silent_s; },
    handleConnection(state) {
      if (state === 'live') {
        quietSince = performance.now();
        silentS = 0;
      }
      connection = state;
      drawConnection();
    },
  };

  function heard() {
    nowMs = fleet.head.unix_ms;
    heardAt = performance.now();
    setText(byId('foot-state'), `${fleet.nodes.size} nodes, ${fleet.publications.size} publications known`);
    dueSoon();
  }

  theme();
  listen();
  watchSight();
  source.start(listener);
  if (source.isRecording) {
    replay();
    for (const element of byId('what-if').elements) element.disabled = true;
    setText(
        byId('what-if-message'),
        'This page is a recording: the forecast is of the fleet as it was. A daemon with --http answers here.');
  } else {
    // What was published "12 s ago" grows old without news.
    setInterval(() => {
      drawConnection();
      if (document.hidden || fleet.head.unix_ms === 0) return;
      nowMs = fleet.head.unix_ms + (performance.now() - heardAt);
      dueSoon();
    }, 1000);
  }
})();
