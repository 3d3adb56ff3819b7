// What the page draws, from what the daemon tells. Pure: no document, no network, no clock. GET /status and /events
// give the input (docs/METRICS.md). Each function of a fleet leaves it as it is, but for the two that take an event.
const Model = (() => {
  'use strict';

  // ---- the fleet, as events tell it

  const HEAD = ['run', 'latest_version', 'model', 'topology', 'predicted_s', 'unix_ms'];

  function emptyFleet() {
    return {
      head: {run: '', latest_version: 0, model: '', topology: '', predicted_s: 0, unix_ms: 0},
      nodes: new Map(),
      publications: new Map(),
      versions: [],
      carried: new Map(),  // worker's name -> bytes per second of its last long transfer
      events: [],          // {ms, level, text}: what has become of nodes, as it was heard; the oldest first
      // Each grows with what it counts; `ended` counts publications that begin or end, not how far one under way is.
      told: 0,  // changes of nodes so far: a node's `revision` is the last one of it
      nodesRevision: 0,
      membersRevision: 0,
      publicationsRevision: 0,
      endedRevision: 0,
      memos: new Map(),
    };
  }

  /// What `make` gives, once for each `revision`: a thousand workers are not sorted again for each number that moves.
  function memo(fleet, name, revision, make) {
    const known = fleet.memos.get(name);
    if (known && known.revision === revision) return known.value;
    const value = make();
    fleet.memos.set(name, {revision, value});
    return value;
  }

  // A worker may have the origin's name.
  const keyOf = (node) => `${node.role}/${node.name}`;

  const EVENTS_MAX = 200;
  const isAbsent = (node) => node.state === 'lost' || node.state === 'awaited';

  function noteEvent(fleet, ms, level, text) {
    fleet.events.push({ms, level, text});
    if (fleet.events.length > EVENTS_MAX) fleet.events.shift();
  }

  /// What has become of a worker that was `before`; null: it was not known.
  function noteNode(fleet, before, node, ms) {
    if (node.role !== 'worker') return;
    const was = before ? before.state : '';
    if (node.state === 'lost' && was !== 'lost') {
      noteEvent(fleet, node.lost_unix_ms || ms, 3, `${node.name} lost${node.last_error ? `: ${node.last_error}` : ''}`);
    } else if (node.state === 'failed' && (was !== 'failed' || before.last_error !== node.last_error)) {
      noteEvent(fleet, ms, 3, `${node.name} failed${node.last_error ? `: ${node.last_error}` : ''}`);
    } else if (before && isAbsent(before) && !isAbsent(node)) {
      noteEvent(fleet, ms, 0, `${node.name} is back`);
    }
  }

  /// Event "state": all that is known. What was known before is forgotten, but for events.
  function applyState(fleet, state) {
    const before = fleet.nodes;
    for (const node of state.nodes || []) noteNode(fleet, before.get(keyOf(node)) || null, node, state.unix_ms);
    for (const name of HEAD)
      if (name in state) fleet.head[name] = state[name];
    fleet.nodes =
        new Map((state.nodes || []).map((node) => [keyOf(node), Object.assign(node, {revision: ++fleet.told})]));
    fleet.publications = new Map((state.publications || []).map((entry) => [entry.version, entry]));
    fleet.versions = state.versions || [];
    ++fleet.nodesRevision;
    ++fleet.membersRevision;
    ++fleet.publicationsRevision;
    ++fleet.endedRevision;
    return fleet;
  }

  /// Event "change": of nodes the members that differ, of publications whole ones.
  function applyChange(fleet, change) {
    for (const name of HEAD)
      if (name in change) fleet.head[name] = change[name];
    for (const part of change.nodes || []) {
      const key = keyOf(part);
      const node = fleet.nodes.get(key);
      if (node) {
        const before = {state: node.state, last_error: node.last_error};
        Object.assign(node, part, {revision: ++fleet.told});
        noteNode(fleet, before, node, change.unix_ms);
      } else {
        ++fleet.membersRevision;
        if (part.role === 'worker') noteEvent(fleet, change.unix_ms, 0, `${part.name} joined`);
        fleet.nodes.set(key, Object.assign(part, {revision: ++fleet.told}));
      }
    }
    for (const gone of change.nodes_gone || []) {
      fleet.nodes.delete(keyOf(gone));
      noteEvent(fleet, change.unix_ms, 0, `${gone.name} is forgotten`);
    }
    for (const entry of change.publications || []) {
      const before = fleet.publications.get(entry.version);
      if (!before || before.state !== entry.state || entry.state !== 'under way') ++fleet.endedRevision;
      fleet.publications.set(entry.version, entry);
    }
    for (const version of change.publications_gone || []) fleet.publications.delete(version);
    if (change.versions) fleet.versions = change.versions;
    if (change.nodes_gone) ++fleet.membersRevision;
    if (change.publications_gone) ++fleet.endedRevision;
    if (change.nodes || change.nodes_gone || 'latest_version' in change) ++fleet.nodesRevision;
    if (change.publications || change.publications_gone || change.versions) ++fleet.publicationsRevision;
    return fleet;
  }

  // ---- whether what is shown still holds

  // A daemon tells that it runs every two seconds, and those of thousands of workers every five.
  const HEARTBEAT_MS_MAX = 7000;

  /// {state: 'live' | 'silent' | 'lost' | 'recorded', age_s, text}. `connection`: 'live', 'lost' or 'recorded';
  /// `quiet_ms`: since anything was heard on it; `silent_s`: for how long the daemon's own thread had not answered then;
  /// `since_ms`: by the clock, when it was heard last.
  function livenessOf({connection, quiet_ms = 0, silent_s = 0, since_ms = 0}) {
    if (connection === 'recorded') return {state: 'recorded', age_s: 0, text: 'a recording'};
    const age_s = quiet_ms / 1000 + silent_s;
    const isLost = connection === 'lost';
    if (!isLost && age_s * 1000 <= HEARTBEAT_MS_MAX) return {state: 'live', age_s: 0, text: 'live'};
    const since = since_ms > 0 ? ` since ${clockText(since_ms)}` : '';
    return {
      state: isLost ? 'lost' : 'silent',
      age_s,
      text: `the daemon does not answer${since}, ${forText(age_s)}${isLost ? '; trying again' : ''}`,
    };
  }

  // A shorter transfer measures delays rather than a link.
  const CARRIED_S_MIN = 0.2;

  /// What links carried in a publication, by the phases that its workers report (GET /publications/N).
  function takeCourses(fleet, courses) {
    let news = false;
    for (const {name, phases} of courses) {
      if (!phases || phases.receiving_s < CARRIED_S_MIN || phases.bytes === 0) continue;
      const rate = phases.bytes / phases.receiving_s;
      news = news || fleet.carried.get(name) !== rate;
      fleet.carried.set(name, rate);
    }
    if (news) ++fleet.nodesRevision;
  }

  const compareNames = new Intl.Collator('en', {numeric: true}).compare;

  /// By name.
  function workersOf(fleet) {
    const keys = memo(
        fleet, 'keys', fleet.membersRevision,
        () => [...fleet.nodes]
                  .filter(([, node]) => node.role === 'worker')
                  .sort(([, a], [, b]) => compareNames(a.name, b.name))
                  .map(([key]) => key));
    return memo(fleet, 'workers', fleet.nodesRevision, () => keys.map((key) => fleet.nodes.get(key)));
  }

  const originOf = (fleet) => memo(
      fleet, 'origin', fleet.nodesRevision,
      () => [...fleet.nodes.values()].find((node) => node.role === 'origin') || null);
  /// The oldest first.
  const publicationsOf = (fleet) => memo(
      fleet, 'publications', fleet.publicationsRevision,
      () => [...fleet.publications.values()].sort((a, b) => a.version - b.version));
  const newestOf = (fleet) => publicationsOf(fleet).at(-1) || null;

  // ---- text

  const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

  function bytesText(bytes) {
    let unit = 0;
    let value = bytes;
    while (value >= 1024 && unit + 1 < UNITS.length) {
      value /= 1024;
      ++unit;
    }
    return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(value >= 10 ? 1 : 2)} ${UNITS[unit]}`;
  }

  /// Of bytes per second, in the bits that links are counted in.
  function rateText(bytesPerSecond) {
    const bits = bytesPerSecond * 8;
    const [value, unit] = bits >= 1e9 ? [bits / 1e9, 'Gbit/s'] :
        bits >= 1e6                   ? [bits / 1e6, 'Mbit/s'] :
                                        [bits / 1e3, 'kbit/s'];
    return `${value >= 99.95 ? Math.round(value) : value.toFixed(value >= 9.995 ? 1 : 2)} ${unit}`;
  }

  function secondsText(seconds) {
    if (seconds === null || seconds === undefined) return '–';
    if (seconds < 9.995) return `${seconds.toFixed(2)} s`;
    if (seconds < 99.95) return `${seconds.toFixed(1)} s`;
    if (seconds < 5999.5) return seconds < 600 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
    return `${(seconds / 3600).toFixed(1)} h`;
  }

  function agoText(seconds) {
    if (seconds < 1.5) return 'just now';
    if (seconds < 120) return `${Math.round(seconds)} s ago`;
    if (seconds < 7200) return `${Math.round(seconds / 60)} min ago`;
    if (seconds < 172800) return `${Math.round(seconds / 3600)} h ago`;
    return `${Math.round(seconds / 86400)} days ago`;
  }

  /// "for 40 s", "for 3 min".
  const forText = (seconds) => `for ${(seconds < 1.5 ? '1 s' : agoText(seconds).replace(' ago', ''))}`;
  /// The time of the day, here.
  const clockText = (ms) => new Date(ms).toLocaleTimeString('en-GB');

  const percentText = (share) =>
      `${share > 0 && share < 0.1 ? (100 * share).toFixed(share < 0.001 ? 3 : 1) : Math.round(100 * share)} %`;
  const countText = (count, noun, plural) =>
      `${count.toLocaleString('en-GB')} ${count === 1 ? noun : plural || noun + 's'}`;

  // ---- states

  // In the order in which legends and tables have them. `text` is what `weightcast status --help` says.
  const STATES = [
    {name: 'idle', label: 'up to date', text: 'has the latest version'},
    {name: 'receiving', label: 'receiving', text: 'a version arrives'},
    {name: 'stale', label: 'stale', text: 'has an older version, and receives none now'},
    {name: 'failed', label: 'failed', text: 'could not install the latest version'},
    {
      name: 'foreign',
      label: 'foreign',
      text: 'has a version of another run, which stays in use until this run has one'
    },
    {name: 'standby', label: 'standby', text: 'waits until another worker is lost, or until it is activated'},
    {name: 'lost', label: 'lost', text: 'is not connected'},
    {name: 'awaited', label: 'not yet back', text: 'is not yet back since its origin was started'},
    {name: 'dialling', label: 'dialling', text: 'looks for its origin'},
  ];
  const STATE_TEXT = Object.fromEntries(STATES.map((state) => [state.name, state.text]));

  // Of those that place a worker elsewhere than anywhere.
  const STANDING_TEXT = {
    tail: 'placed at the end of a chain, after faults',
    'rollout-only': 'feeds nobody, after more faults',
    leaf: 'feeds nobody: --leaf-only',
    unreachable: 'feeds nobody: nobody could dial it',
  };

  const isReceiving = (node) => node.receiving_version > 0 && node.chunks_total > 0;

  /// The share of the version that it receives, 1 if it has the latest, 0 otherwise.
  function progressOf(node) {
    if (isReceiving(node)) return Math.min(1, node.chunks_verified / node.chunks_total);
    return node.state === 'idle' && node.version > 0 ? 1 : 0;
  }

  /// What the node's link to its parent carries now, or what it carried the last time: null if that is not known.
  function linkOf(fleet, node) {
    if (node.receive_bytes_per_s > 0) return {bytes_per_s: node.receive_bytes_per_s, live: true};
    const carried = node.parent ? fleet.carried.get(node.name) : undefined;
    return carried ? {bytes_per_s: carried, live: false} : null;
  }

  function countsOf(fleet) {
    const counts = Object.fromEntries(STATES.map((state) => [state.name, 0]));
    for (const node of workersOf(fleet)) counts[node.state] = (counts[node.state] || 0) + 1;
    return counts;
  }

  /// What a legend calls the state. Before the first version there is none to have.
  const labelOf = (fleet, state) =>
      (state.name === 'idle' && fleet.head.latest_version === 0 ? 'waiting' : state.label);

  /// Which versions workers have: [{version, workers}], the newest first.
  function spreadOf(fleet) {
    const spread = new Map();
    for (const node of workersOf(fleet)) {
      if (isAbsent(node) || node.state === 'standby') continue;
      spread.set(node.version, (spread.get(node.version) || 0) + 1);
    }
    return [...spread].map(([version, workers]) => ({version, workers})).sort((a, b) => b.version - a.version);
  }

  // ---- what the fleet does, in a sentence

  /// {tone: 'good' | 'busy' | 'warn' | 'bad' | 'none' | 'stale', title, detail}. What an origin said that does not
  /// answer any more holds for when it said it.
  function verdictOf(fleet, liveness = null) {
    const told = toldVerdictOf(fleet);
    if (!liveness || liveness.state === 'live' || liveness.state === 'recorded' || fleet.head.unix_ms === 0) return told;
    return {
      tone: 'stale',
      title: `The origin has not answered ${forText(liveness.age_s)}`,
      detail: `At ${clockText(fleet.head.unix_ms)} it said: ${told.title}. What is shown here is as it was then.`,
    };
  }

  function absentText(counts) {
    const parts = [];
    if (counts.lost > 0) parts.push(`${countText(counts.lost, 'worker')} ${counts.lost === 1 ? 'is' : 'are'} lost`);
    if (counts.awaited > 0)
      parts.push(`${countText(counts.awaited, 'worker')} ${counts.awaited === 1 ? 'is' : 'are'} not yet back`);
    return parts.length > 0 ? ` ${parts.join(', ')}.` : '';
  }

  function toldVerdictOf(fleet) {
    const newest = newestOf(fleet);
    const counts = countsOf(fleet);
    const workers = workersOf(fleet).length;
    if (originOf(fleet) === null && workers === 0) {
      return {tone: 'none', title: 'Nothing has been heard of the fleet yet', detail: ''};
    }
    const bad = counts.failed + counts.lost;
    const absent = counts.lost + counts.awaited;
    if (counts.awaited > 0 && (newest === null || newest.state !== 'under way')) {
      const all = workers - counts.lost - counts.standby;
      return {
        tone: 'busy',
        title: `${all - counts.awaited} of ${countText(all, 'worker')} ${
            all - counts.awaited === 1 ? 'is' : 'are'} back since the origin was started`,
        detail: `The latest version is ${fleet.head.latest_version}.${absentText({...counts, awaited: 0})}`,
      };
    }
    if (newest === null) {
      const version = fleet.head.latest_version;
      if (version > 0) {
        return {
          tone: bad > 0 ? 'warn' : 'good',
          title: `${countText(counts.idle, 'worker')} ${counts.idle === 1 ? 'has' : 'have'} version ${version}`,
          detail: 'The origin has published nothing since it was started.',
        };
      }
      return {
        tone: 'none',
        title: `${countText(workers, 'worker')} ${workers === 1 ? 'waits' : 'wait'} for the first version`,
        detail: '',
      };
    }
    const what = `${bytesText(newest.payload_bytes)}${newest.kind === 'full' ? '' : ` ${newest.kind}`}`;
    const expected = newest.predicted_s > 0 ? `, predicted ${secondsText(newest.predicted_s)}` : '';
    if (newest.state === 'under way') {
      const arriving = workersOf(fleet).filter((node) => node.receiving_version === newest.version);
      const share = newest.workers > 0 ?
          (newest.installed + arriving.reduce((sum, node) => sum + progressOf(node), 0)) / newest.workers :
          0;
      return {
        tone: 'busy',
        title: `Version ${newest.version} is at ${newest.installed} of ${countText(newest.workers, 'worker')}`,
        detail: `${what} each, ${percentText(Math.min(1, share))} has arrived, for ${
            secondsText(newest.elapsed_s)} now${expected}.`,
      };
    }
    if (newest.state === 'given up') {
      return {tone: 'bad', title: `The origin gave up version ${newest.version}`, detail: sentence(newest.why)};
    }
    const serving = workersOf(fleet).filter((node) => !isAbsent(node) && node.state !== 'standby');
    const all = newest.installed === newest.workers;
    // Those that are connected now are who the tile of workers counts, too.
    const who = absent > 0 && serving.length > 0 ? `${serving.length.toLocaleString('en-GB')} connected workers` :
                                                   countText(newest.workers, 'worker');
    const took = newest.t100_s !== null ?
        `${what} reached the last worker in ${secondsText(newest.t100_s)}${expected}.` :
        newest.t90_s !== null ? `${what} reached nine in ten workers in ${secondsText(newest.t90_s)}${expected}.` :
                                `${what}.`;
    return {
      tone: !all  ? 'bad' :
          bad > 0 ? 'warn' :
                    'good',
      title: all ? `All ${who} have version ${newest.version}` :
                   `Version ${newest.version} is at ${newest.installed} of ${countText(newest.workers, 'worker')}`,
      detail: took + absentText(counts),
    };
  }

  function sentence(text) {
    if (!text) return '';
    return text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? '' : '.');
  }

  /// Why the last publication that has ended took its time: "gpu-7: the link from gpu-3 ..."; '' if nothing is known.
  function whyOf(entry) {
    if (!entry) return '';
    if (entry.slowest && entry.why) return `${entry.slowest}: ${entry.why}`;
    return entry.slowest || entry.why || '';
  }

  // ---- who needs somebody

  const KEYS_WARNING_S = 30 * 86400;

  /// What speaks against a node, in the words of `weightcast status`: [{level, text}], the worst first.
  function remarksOf(node, nowUnixS) {
    const remarks = [];
    if (node.offence) remarks.push({level: 3, text: node.offence});
    const since = node.lost_unix_ms > 0 ?
        ` since ${clockText(node.lost_unix_ms)}, ${forText(Math.max(0, nowUnixS - node.lost_unix_ms / 1000))}` :
        '';
    if (node.state === 'lost') remarks.push({level: 3, text: STATE_TEXT.lost + since});
    if (node.state === 'awaited') remarks.push({level: 1, text: STATE_TEXT.awaited});
    if (node.state === 'failed')
      remarks.push({level: 3, text: node.last_error || STATE_TEXT.failed});
    else if (node.last_error)
      remarks.push({level: 2, text: node.last_error});
    for (const other of node.cannot_reach || []) {
      remarks.push({level: 2, target: other, text: `cannot reach ${other.name} at ${other.address}: ${other.why}`});
    }
    if (node.standing === 'unreachable') remarks.push({level: 2, text: STANDING_TEXT.unreachable});
    if (node.state === 'stale') remarks.push({level: 2, text: STATE_TEXT.stale});
    if (node.standing === 'tail' || node.standing === 'rollout-only') {
      remarks.push({level: 1, text: STANDING_TEXT[node.standing]});
    }
    if (node.complaints > 0) remarks.push({level: 1, text: `${node.complaints} complain${node.complaints === 1 ? "s" : ""} of it`});
    if (node.complains > 0) remarks.push({level: 1, text: `it complains of ${node.complains}`});
    if (node.manifests_refused > 0)
      remarks.push({level: 1, text: `refused ${countText(node.manifests_refused, 'manifest')}`});
    if (node.keys_expire_unix_s > 0 && node.keys_expire_unix_s - nowUnixS <= KEYS_WARNING_S) {
      const day = new Date(node.keys_expire_unix_s * 1000).toISOString().slice(0, 10);
      remarks.push({level: 2, text: `its keys expire on ${day}`});
    }
    if (node.earlier_run || node.state === 'foreign')
      remarks.push({level: 1, text: 'its version is of the run before'});
    if (node.state === 'standby') remarks.push({level: 0, text: STATE_TEXT.standby});
    if (node.standing === 'leaf') remarks.push({level: 0, text: STANDING_TEXT.leaf});
    return remarks.sort((a, b) => b.level - a.level);
  }

  /// All remarks, worst first: [{key, names, level, text}]. Nodes of which the same is said stand together, and a node
  /// that several cannot reach stands there once, with all of them.
  function attentionOf(fleet, nowUnixS) {
    const found = new Map();
    for (const [key, node] of fleet.nodes) {
      const remarks = remarksOf(node, nowUnixS).filter((remark) => !remark.target);
      if (remarks.length === 0) continue;
      const text = remarks.map((remark) => remark.text).join('; ');
      const same = found.get(text);
      if (same)
        same.names.push(node.name);
      else
        found.set(text, {key, names: [node.name], level: remarks[0].level, text});
    }
    for (const one of found.values()) one.names.sort(compareNames);
    for (const one of unreachedOf(fleet)) found.set(`${one.key} ${one.text}`, one);
    return [...found.values()].sort((a, b) => b.level - a.level || compareNames(a.names[0], b.names[0]));
  }

  /// The nodes that others cannot dial: [{key, names, level, text}].
  function unreachedOf(fleet) {
    const targets = new Map();
    for (const node of fleet.nodes.values()) {
      for (const {name, address, why} of node.cannot_reach || []) {
        const id = JSON.stringify([name, address, why]);
        if (!targets.has(id)) targets.set(id, {name, address, why, by: []});
        targets.get(id).by.push(node.name);
      }
    }
    return [...targets.values()].map(({name, address, why, by}) => {
      by.sort(compareNames);
      const who = by.length <= 3 ? by.join(', ') : `${by.slice(0, 2).join(', ')} and ${by.length - 2} more`;
      return {
        key: `worker/${name}`,
        names: [name],
        level: 2,
        text: `${who} cannot reach ${name} at ${address}: ${why}`,
        query: `cannot reach ${name} at ${address}`,
      };
    });
  }

  // ---- what happened

  /// The newest first: [{ms, level, text}], what has become of workers and of publications.
  function eventsOf(fleet, most = 40) {
    const events = fleet.events.slice();
    for (const entry of publicationsOf(fleet).slice(-most)) {
      events.push({ms: entry.published_unix_ms, level: 0, text: `version ${entry.version} published`});
      if (entry.state === 'under way') continue;
      const after = entry.t100_s ?? entry.elapsed_s ?? 0;
      const ended = entry.published_unix_ms + 1000 * after;
      const text = entry.state === 'complete' ?
          `version ${entry.version} is at all ${countText(entry.workers, 'worker')}, after ${secondsText(after)}` :
          `version ${entry.version} ${entry.state}, at ${entry.installed} of ${countText(entry.workers, 'worker')}`;
      events.push({ms: ended, level: entry.state === 'given up' ? 3 : 0, text});
    }
    return events.sort((a, b) => b.ms - a.ms).slice(0, most);
  }

  // ---- chains

  /// Who receives from whom: [{key, node, parent, depth}] for each seed's tree, in the order in which versions pass.
  /// `parent` is a key, or null for the origin. Workers that nobody feeds, and those whose parents lead in a circle
  /// (two reports of different moments), are in `apart`.
  const chainsOf = (fleet) => memo(fleet, 'chains', fleet.nodesRevision, () => makeChains(fleet));

  function makeChains(fleet) {
    const origin = originOf(fleet);
    const workers = workersOf(fleet);
    const isFed = (node) => node.parent !== '' && !isAbsent(node) && node.state !== 'standby';
    const fedBy = new Map();
    for (const node of workers) {
      if (!isFed(node)) continue;
      const list = fedBy.get(node.parent);
      if (list)
        list.push(node);
      else
        fedBy.set(node.parent, [node]);
    }
    const seen = new Set();
    const chains = [];
    for (const seed of origin ? fedBy.get(origin.name) || [] : []) {
      if (seen.has(seed.name)) continue;
      seen.add(seed.name);
      const members = [{key: keyOf(seed), node: seed, parent: null, depth: 0}];
      for (let next = 0; next < members.length; ++next) {
        const {node, key, depth} = members[next];
        for (const child of fedBy.get(node.name) || []) {
          if (seen.has(child.name)) continue;
          seen.add(child.name);
          members.push({key: keyOf(child), node: child, parent: key, depth: depth + 1});
        }
      }
      chains.push(members);
    }
    const apart = workers.filter((node) => !seen.has(node.name))
                      .map((node) => ({key: keyOf(node), node, parent: null, depth: 0}));
    return {origin, chains, apart};
  }

  /// Where a chain's members stand if each has a column by its depth and each branch a row: adds `row` to each, and
  /// returns how many rows that takes. A node stands in the row of its first child.
  function placeRows(members) {
    const children = new Map();
    for (const member of members) {
      if (member.parent === null) continue;
      const list = children.get(member.parent);
      if (list)
        list.push(member);
      else
        children.set(member.parent, [member]);
    }
    let rows = 0;
    const waiting = [[members[0], true]];
    while (waiting.length > 0) {
      const [member, isFirst] = waiting.pop();
      if (!isFirst) ++rows;
      member.row = rows;
      const below = children.get(member.key) || [];
      for (let i = below.length - 1; i >= 0; --i) waiting.push([below[i], i === 0]);
    }
    return rows + 1;
  }

  /// One line about a chain: who has the latest version, and its slowest link, if any is known.
  function chainSummaryOf(fleet, members) {
    let have = 0;
    let slowest = null;
    for (const {node} of members) {
      if (node.state === 'idle' && node.version > 0) ++have;
      const link = linkOf(fleet, node);
      if (link && (slowest === null || link.bytes_per_s < slowest.bytes_per_s)) slowest = {...link, name: node.name};
    }
    return {have, size: members.length, slowest};
  }

  /// What a screen reader says of a node.
  function nodeText(fleet, node) {
    const parts = [node.name];
    if (isReceiving(node)) {
      parts.push(`receives version ${node.receiving_version}, ${percentText(progressOf(node))}`);
    } else {
      parts.push(STATE_TEXT[node.state] || node.state);
      if (node.version > 0) parts.push(`version ${node.version}`);
    }
    if (node.parent) parts.push(`from ${node.parent}`);
    const link = linkOf(fleet, node);
    if (link) parts.push(`${link.live ? 'at' : 'last at'} ${rateText(link.bytes_per_s)}`);
    if (STANDING_TEXT[node.standing]) parts.push(STANDING_TEXT[node.standing]);
    return parts.join(', ');
  }

  // ---- one publication's time

  // `from`: members of a worker's course, or of a publication for the origin's own.
  const PHASES = [
    {name: 'take', label: 'take over', member: 'take_over_s', text: 'the origin copies the weights and hashes them'},
    {name: 'encode', label: 'encode', member: 'encode_s', text: 'the origin makes the patch'},
    {name: 'pack', label: 'pack', member: 'pack_s', text: 'the origin codes the whole version'},
    {name: 'told', label: 'not told', text: 'the worker was not told of the version yet'},
    {name: 'waited', label: 'waited', member: 'waiting_s', text: 'told, until it begins the payload'},
    {name: 'asked', label: 'asked', member: 'asking_s', text: 'until the first chunk'},
    {name: 'received', label: 'received', member: 'receiving_s', text: 'until the last chunk is verified'},
    {name: 'stored', label: 'stored', member: 'storing_s', text: 'until all chunks are on the disk'},
    {name: 'applied', label: 'applied', member: 'applying_s', text: 'until the version is checked, and decoded'},
    {name: 'switched', label: 'switched', member: 'switching_s', text: 'until it is the version in use'},
    {name: 'engine', label: 'engine', member: 'engine_s', text: 'until an engine on that host takes it'},
  ];
  const PHASE = Object.fromEntries(PHASES.map((phase) => [phase.name, phase]));
  const WORKER_PHASES = ['waited', 'asked', 'received', 'stored', 'applied', 'switched', 'engine'];

  /// Bars of a publication, in seconds after it began: [{name, who, segments: [{phase, from, to}], end, bytes, fed_by,
  /// remark}], the origin first, then workers, the slowest first.
  /// `running_s`: since it began, if it is under way; what has not ended lasts until then. `nodes`: workers, as they
  /// are now.
  function waterfallOf(entry, courses, running_s = null, nodes = []) {
    const isRunning = running_s !== null;
    const making = [];
    let at = 0;
    for (const name of ['take', 'encode', 'pack']) {
      const lasted = entry[PHASE[name].member];
      const began = entry[PHASE[name].member.replace('_s', '_at_s')] ?? null;
      if (lasted > 0)
        making.push({phase: name, from: at, to: (at += lasted)});
      else if (isRunning && began !== null && running_s > began)
        making.push({phase: name, from: began, to: (at = running_s)});
    }
    const rows = [];
    for (const course of courses) {
      const segments = [];
      const told = course.told_s ?? course.joined_s ?? 0;
      if (told > 0) segments.push({phase: 'told', from: 0, to: told});
      let time = told;
      if (course.phases) {
        for (const name of WORKER_PHASES) {
          const lasted = course.phases[PHASE[name].member];
          if (lasted > 0) segments.push({phase: name, from: time, to: (time += lasted)});
        }
      } else if (course.installed_s !== null && course.installed_s > told) {
        segments.push({phase: 'received', from: told, to: (time = course.installed_s)});
      } else if (isRunning && course.installed_s === null && running_s > told) {
        segments.push({phase: runningPhase(entry, course, nodes), from: told, to: (time = running_s)});
      }
      rows.push({
        name: course.name,
        who: 'worker',
        segments,
        end: course.installed_s,
        payload: course.payload,
        bytes: course.phases ? course.phases.bytes : null,
        fed_by: course.phases ? course.phases.fed_by : '',
        remark: courseRemark(course),
        cause: course.name === entry.slowest,
      });
    }
    // The origin lists those that it has told, or that have come since.
    const listed = new Set(courses.map((course) => course.name));
    for (const node of isRunning ? nodes : []) {
      if (listed.has(node.name) || isAbsent(node) || node.state === 'standby' || node.version >= entry.version) continue;
      rows.push({
        name: node.name,
        who: 'worker',
        segments: [{phase: 'told', from: 0, to: running_s}],
        end: null,
        payload: '',
        bytes: null,
        fed_by: '',
        remark: '',
        cause: false,
      });
    }
    rows.sort((a, b) => (b.end ?? Infinity) - (a.end ?? Infinity) || compareNames(a.name, b.name));
    const origin = {
      name: 'origin',
      who: 'origin',
      segments: making,
      end: at,
      payload: entry.kind,
      bytes: entry.sent_bytes,
      fed_by: '',
      remark: '',
      cause: entry.cause === 'origin'
    };
    return [origin, ...rows];
  }

  /// What a worker without the version does.
  function runningPhase(entry, course, nodes) {
    if (course.told_s === null) return 'told';
    const node = nodes.find((one) => one.name === course.name);
    return node && node.receiving_version === entry.version && node.chunks_verified > 0 ? 'received' : 'waited';
  }

  /// Those rows as they were `at` seconds after the publication began: for a moment of a recording, which has the
  /// whole.
  function rowsUntil(rows, at) {
    return rows.map((row) => ({
                      ...row,
                      end: row.end !== null && row.end <= at ? row.end : null,
                      segments: row.segments.filter((segment) => segment.from < at)
                                    .map((segment) => ({...segment, to: Math.min(segment.to, at)})),
                    }));
  }

  function courseRemark(course) {
    const parts = [];
    if (course.joined_s !== null) parts.push(`joined at ${secondsText(course.joined_s)}`);
    if (course.failure) parts.push(course.failure);
    const phases = course.phases;
    if (phases) {
      if (phases.given_up_s > 0) parts.push(`${secondsText(phases.given_up_s)} on a payload that it gave up`);
      if (phases.interrupted_s > 0) {
        parts.push(
            `left ${countText(phases.parents_left, 'parent')}, ${secondsText(phases.interrupted_s)} without chunks`);
      }
      if (phases.disk_behind_s > 0) parts.push(`${secondsText(phases.disk_behind_s)} behind its disk`);
    }
    return parts.join('; ');
  }

  // ---- the last publications

  /// A table by columns, oldest first, of the last `most` publications.
  function historyOf(fleet, most = 1000) { return publicationsOf(fleet).slice(-most); }

  // As the origin's log has it: a miss is a factor of 1.5, and half a second.
  const MISS_FACTOR = 1.5, MISS_S = 0.5;
  const missAbove = (predicted) => Math.max(MISS_FACTOR * predicted, predicted + MISS_S);

  /// Those of which both are known: [{version, predicted, measured, missed}]. The plan counts from when the origin can
  /// send, so what it took to make the payload is none of the measured time.
  function forecastsOf(entries) {
    const sentIn = (entry) => Math.max(0.001, entry.t100_s - entry.take_over_s - entry.encode_s - entry.pack_s);
    return entries.filter((entry) => entry.predicted_s > 0 && entry.t100_s !== null && entry.t100_s > 0)
        .map((entry) => ({
               version: entry.version,
               predicted: entry.predicted_s,
               measured: sentIn(entry),
               missed: sentIn(entry) > missAbove(entry.predicted_s),
             }));
  }

  /// By rank; null without values.
  function quantileOf(values, quantile) {
    const sorted = values.filter((value) => Number.isFinite(value)).sort((a, b) => a - b);
    return sorted.length === 0 ?
        null :
        sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(quantile * sorted.length) - 1))];
  }

  // ---- workers

  const COLUMNS = {
    name: (node) => node.name,
    state: (node) => STATES.findIndex((state) => state.name === node.state),
    version: (node) => node.version,
    progress: progressOf,
    parent: (node) => node.parent,
    link: (node, fleet) => (linkOf(fleet, node) || {bytes_per_s: -1}).bytes_per_s,
    uplink: (node) => node.uplink_bytes_per_s,
    score: (node) => node.score,
    sent: (node) => node.bytes_sent,
  };

  /// Workers that `query` (words, all of which its name, address, state, parent or remarks have) and `state` leave, by
  /// a column. `descending` turns it around.
  function workerRowsOf(fleet, {query = '', state = '', column = 'name', descending = false} = {}, nowUnixS = 0) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [];
    for (const node of workersOf(fleet)) {
      if (state && node.state !== state) continue;
      const remarks = remarksOf(node, nowUnixS);
      if (words.length > 0) {
        const text = [
          node.name, node.address, node.state, node.parent, node.standing, `version ${node.version}`,
          ...remarks.map((remark) => remark.text)
        ].join(' ').toLowerCase();
        if (!words.every((word) => text.includes(word))) continue;
      }
      rows.push({key: keyOf(node), node, remarks});
    }
    const value = COLUMNS[column] || COLUMNS.name;
    if (value === COLUMNS.name) return descending ? rows.reverse() : rows;
    const sign = descending ? -1 : 1;
    return rows.sort((a, b) => {
      const [x, y] = [value(a.node, fleet), value(b.node, fleet)];
      const order = typeof x === 'string' ? compareNames(x, y) : x - y;
      return sign * order || compareNames(a.node.name, b.node.name);
    });
  }

  // ---- what a worker costs

  /// Of the newest publication with a payload: what the origin sent in all and for each worker, and how often that is
  /// the payload. Null before there is one.
  function egressOf(entry) {
    if (!entry || entry.workers === 0 || entry.payload_bytes === 0) return null;
    return {
      sent: entry.sent_bytes,
      per_worker: entry.sent_bytes / entry.workers,
      copies: entry.sent_bytes / entry.payload_bytes,
      star: entry.workers * entry.payload_bytes,
    };
  }

  /// The rates that the fleet has, for a question about another one: medians of what is known, in bytes per second.
  function fleetFiguresOf(fleet) {
    const workers = workersOf(fleet).filter((node) => !isAbsent(node));
    const known = (member) => workers.map((node) => node[member]).filter((rate) => rate > 0);
    const newest = publicationsOf(fleet).filter((entry) => entry.snapshot_bytes > 0).at(-1);
    const origin = originOf(fleet);
    return {
      workers: workers.filter((node) => node.state !== 'standby').length,
      uplink: origin && origin.uplink_bytes_per_s > 0 ? origin.uplink_bytes_per_s : null,
      peer_uplink: quantileOf(known('uplink_bytes_per_s'), 0.5),
      peer_downlink: quantileOf(known('downlink_bytes_per_s'), 0.5),
      bytes: newest ? newest.snapshot_bytes : null,
    };
  }

  // ---- the learner

  // The learner does not count a worker of which it has heard nothing for longer (`workers/alive`).
  const SILENT_S_MAX = 15;

  /// What its port tells: GET /v1/status, with the figures of the last training step in "metrics".
  function learnerOf(status) {
    if (!status) return null;
    const metrics = status.metrics || {};
    const figure = (name) => (Number.isFinite(metrics[name]) ? metrics[name] : null);
    const workers = (status.workers || [])
                        .map((row) => ({
                               name: row.name,
                               version: row.version,
                               version_s: row.version_s,
                               active: row.active && !(row.silent_s > SILENT_S_MAX),
                               silent: row.silent_s > SILENT_S_MAX,
                               wanted: row.wanted,
                               silent_s: row.silent_s,
                               // What it made when it was heard last, it makes no more.
                               rollouts_per_s: row.silent_s > SILENT_S_MAX ? 0 : row.rollouts_per_s,
                               tokens_per_s: row.silent_s > SILENT_S_MAX ? 0 : row.tokens_per_s,
                               under_way: row.under_way,
                               admitted: row.admitted,
                               fault: row.fault,
                               price_per_hour: row.price_per_hour ?? null,
                             }))
                        .sort((a, b) => compareNames(a.name, b.name));
    const active = workers.filter((row) => row.active);
    const steps = figure('training/global_step');
    // A learner without any price says 0.
    const cost = figure('cost_total') > 0 ? figure('cost_total') : null;
    const prices = active.map((row) => row.price_per_hour).filter((price) => price > 0);
    return {
      version: status.version,
      step: steps,
      reward: figure('critic/score/mean'),
      staleness: figure('off_policy/mean'),
      staleness_max: figure('off_policy/max'),
      bubble: figure('bubble_ratio'),
      bubble_predicted: figure('bubble_predicted'),
      step_s: figure('timing_s/step'),
      cost_total: cost,
      cost_per_step: cost !== null && steps > 0 ? cost / steps : null,
      price_per_hour: prices.length > 0 ? prices.reduce((sum, price) => sum + price, 0) : null,
      rollouts_per_s: active.reduce((sum, row) => sum + row.rollouts_per_s, 0),
      mu_min: figure('mu_min'),
      mu_eff: figure('mu_eff'),
      t_bcast: figure('t_bcast'),
      active: active.length,
      workers,
    };
  }

  return {
    emptyFleet,
    applyState,
    applyChange,
    takeCourses,
    keyOf,
    workersOf,
    originOf,
    publicationsOf,
    newestOf,
    bytesText,
    rateText,
    secondsText,
    agoText,
    percentText,
    countText,
    sentence,
    STATES,
    STATE_TEXT,
    STANDING_TEXT,
    isReceiving,
    progressOf,
    linkOf,
    livenessOf,
    forText,
    clockText,
    isAbsent,
    eventsOf,
    countsOf,
    labelOf,
    spreadOf,
    verdictOf,
    whyOf,
    remarksOf,
    attentionOf,
    compareNames,
    chainsOf,
    placeRows,
    chainSummaryOf,
    nodeText,
    PHASES,
    PHASE,
    waterfallOf,
    rowsUntil,
    historyOf,
    missAbove,
    forecastsOf,
    quantileOf,
    workerRowsOf,
    egressOf,
    fleetFiguresOf,
    learnerOf,
  };
})();
