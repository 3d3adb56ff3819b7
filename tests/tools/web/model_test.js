// Tests of tools/web/model.js: a list of [name, function], for Node.js or a page. model_test.py runs them.
function modelTests(Model) {
  'use strict';

  function equal(found, expected, what = '') {
    const [a, b] = [JSON.stringify(found), JSON.stringify(expected)];
    if (a !== b) throw new Error(`${what} is ${a}, not ${b}`);
  }

  function node(name, more = {}) {
    return {
      name,
      role: 'worker',
      address: '10.0.0.1:7400',
      version: 7,
      state: 'idle',
      parent: '',
      children: [],
      score: 0.5,
      standing: 'seed',
      receiving_version: 0,
      chunks_verified: 0,
      chunks_total: 0,
      receive_bytes_per_s: 0,
      uplink_bytes_per_s: 0,
      downlink_bytes_per_s: 0,
      bytes_received: 0,
      bytes_sent: 0,
      payload: 'full',
      payload_bytes: 100,
      keys_expire_unix_s: 0,
      earlier_run: false,
      manifests_refused: 0,
      offence: '',
      complaints: 0,
      complains: 0,
      cannot_reach: [],
      last_error: '',
      ...more,
    };
  }

  function publication(version, more = {}) {
    return {
      version,
      published_unix_ms: 1000,
      state: 'complete',
      kind: 'full',
      snapshot_bytes: 4096,
      payload_bytes: 4096,
      sent_bytes: 8192,
      t50_s: 1,
      t90_s: 2,
      t100_s: 3,
      predicted_s: 2.5,
      topology: 'chain',
      workers: 3,
      installed: 3,
      take_over_s: 0.5,
      encode_s: 0,
      pack_s: 0,
      elapsed_s: 3,
      slowest: 'c',
      cause: 'link',
      why: 'its link brought 1 MiB/s from b',
      ...more,
    };
  }

  const origin = node('origin', {role: 'origin', children: ['a', 'd']});

  /// origin > a > b > c, origin > d.
  function fleetOf(nodes, publications = [publication(7)]) {
    return Model.applyState(Model.emptyFleet(), {
      run: 'r',
      model: 'm',
      latest_version: 7,
      topology: 'chain',
      predicted_s: 2.5,
      unix_ms: 5000,
      nodes: [origin, ...nodes],
      publications,
      versions: [],
    });
  }
  const chain = () =>
      [node('a', {parent: 'origin', children: ['b']}), node('b', {parent: 'a', children: ['c']}),
       node('c', {parent: 'b'}), node('d', {parent: 'origin'})];

  return [
    [
      'a change overwrites what differs and keeps the rest',
      () => {
        const fleet = fleetOf(chain());
        Model.applyChange(fleet, {
          unix_ms: 6000,
          nodes: [
            {role: 'worker', name: 'b', state: 'receiving', receiving_version: 8, chunks_total: 10, chunks_verified: 4}
          ],
          publications: [publication(8, {state: 'under way'})]
        });
        const b = fleet.nodes.get('worker/b');
        equal([b.state, b.parent, Model.progressOf(b)], ['receiving', 'a', 0.4]);
        equal(Model.publicationsOf(fleet).map((entry) => entry.version), [7, 8]);
        equal(fleet.head.unix_ms, 6000);
      }
    ],
    [
      'what has gone is forgotten',
      () => {
        const fleet = fleetOf(chain());
        Model.workersOf(fleet);
        Model.applyChange(fleet, {unix_ms: 1, nodes_gone: [{role: 'worker', name: 'd'}], publications_gone: [7]});
        equal(Model.workersOf(fleet).map((one) => one.name), ['a', 'b', 'c']);
        equal(Model.newestOf(fleet), null);
      }
    ],
    [
      'a worker with the name of the origin is another node',
      () => {
        const fleet = fleetOf([node('origin', {parent: 'origin'})]);
        equal(fleet.nodes.size, 2);
        equal(Model.originOf(fleet).role, 'origin');
      }
    ],
    [
      'a new state forgets all of the one before',
      () => {
        const fleet = fleetOf(chain());
        Model.workersOf(fleet);
        Model.applyState(fleet, {nodes: [node('z')], publications: []});
        equal(Model.workersOf(fleet).map((one) => one.name), ['z']);
      }
    ],
    [
      'names are in the order of their numbers',
      () => {
        equal(Model.workersOf(fleetOf([node('gpu-10'), node('gpu-9')])).map((one) => one.name), ['gpu-9', 'gpu-10']);
      }
    ],
    [
      'chains follow parents, and tell how deep each is',
      () => {
        const {chains, apart} = Model.chainsOf(fleetOf(chain()));
        equal(
            chains.map((members) => members.map((one) => [one.node.name, one.depth])),
            [[['a', 0], ['b', 1], ['c', 2]], [['d', 0]]]);
        equal(apart, []);
      }
    ],
    [
      'who is lost, on standby, or in a circle is in no chain',
      () => {
        const {chains, apart} = Model.chainsOf(fleetOf([
          node('a', {parent: 'origin'}), node('lost', {parent: 'origin', state: 'lost'}),
          node('spare', {parent: 'a', state: 'standby'}), node('x', {parent: 'y'}), node('y', {parent: 'x'})
        ]));
        equal(chains.map((members) => members.length), [1]);
        equal(apart.map((one) => one.node.name), ['lost', 'spare', 'x', 'y']);
      }
    ],
    [
      'each branch has a row of its own',
      () => {
        const {chains} = Model.chainsOf(fleetOf([
          node('a', {parent: 'origin'}), node('b', {parent: 'a'}), node('c', {parent: 'a'}), node('d', {parent: 'b'})
        ]));
        equal(Model.placeRows(chains[0]), 2);
        equal(chains[0].map((one) => [one.node.name, one.row]), [['a', 0], ['b', 0], ['c', 1], ['d', 0]]);
      }
    ],
    [
      'a chain of ten thousand takes no recursion',
      () => {
        const fleet =
            fleetOf(Array.from({length: 10000}, (_, i) => node(`w${i}`, {parent: i === 0 ? 'origin' : `w${i - 1}`})));
        const {chains} = Model.chainsOf(fleet);
        equal([chains[0].length, Model.placeRows(chains[0])], [10000, 1]);
      }
    ],
    [
      'the sentence says whether all have the newest version',
      () => {
        equal(Model.verdictOf(fleetOf(chain())).title, 'All 3 workers have version 7');
        equal(Model.verdictOf(fleetOf(chain())).tone, 'good');
        const under = fleetOf(
            [
              node(
                  'a',
                  {parent: 'origin', state: 'receiving', receiving_version: 8, chunks_total: 4, chunks_verified: 2}),
              node('b', {parent: 'a'})
            ],
            [publication(8, {state: 'under way', workers: 2, installed: 1, elapsed_s: 1.5, t100_s: null})]);
        const said = Model.verdictOf(under);
        equal(said.tone, 'busy');
        equal(said.title, 'Version 8 is at 1 of 2 workers');
        equal(said.detail, '4.00 KiB each, 75 % has arrived, for 1.50 s now, predicted 2.50 s.');
        equal(Model.verdictOf(fleetOf(chain(), [publication(7, {installed: 2, t100_s: null})])).tone, 'bad');
        equal(Model.verdictOf(Model.emptyFleet()).tone, 'none');
        equal(Model.verdictOf(fleetOf([...chain(), node('e', {state: 'lost'})])).tone, 'warn');
      }
    ],
    [
      'what needs somebody is named in the words of status, the worst first',
      () => {
        const fleet = fleetOf([
          node('a', {cannot_reach: [{name: 'b', address: '10.0.0.4:7400', why: 'timed out'}]}),
          node('b', {state: 'lost', last_error: 'the peer closed'}), node('c', {state: 'standby'}),
          node('d', {state: 'standby'})
        ]);
        equal(Model.attentionOf(fleet, 0), [
          {key: 'worker/b', names: ['b'], level: 3, text: 'is not connected; the peer closed'},
          {
            key: 'worker/b',
            names: ['b'],
            level: 2,
            text: 'a cannot reach b at 10.0.0.4:7400: timed out',
            query: 'cannot reach b at 10.0.0.4:7400'
          },
          {
            key: 'worker/c',
            names: ['c', 'd'],
            level: 0,
            text: 'waits until another worker is lost, or until it is activated'
          }
        ]);
      }
    ],
    [
      'a port that many cannot reach is one thing that needs somebody',
      () => {
        const unreached = [{name: 'w12', address: '10.0.0.4:7400', why: 'connection refused'}];
        const names = Array.from({length: 11}, (_, i) => `w${i + 1}`);
        const fleet = fleetOf([...names.map((name) => node(name, {cannot_reach: unreached})), node('w12')]);
        const found = Model.attentionOf(fleet, 0);
        equal(found.map((one) => [one.names, one.text]), [
          [['w12'], 'w1, w2 and 9 more cannot reach w12 at 10.0.0.4:7400: connection refused']
        ]);
        equal(Model.workerRowsOf(fleet, {query: found[0].query}).length, 11);
      }
    ],
    [
      'a daemon that is not heard makes the verdict grey, with its age',
      () => {
        const fleet = fleetOf([node('a'), node('b')]);
        Model.applyChange(fleet, {unix_ms: 5000, publications: [publication(7, {workers: 2, installed: 2})]});
        const verdict = (told) => Model.verdictOf(fleet, Model.livenessOf(told));
        equal(verdict({connection: 'live', quiet_ms: 3000}).title, 'All 2 workers have version 7');
        equal(verdict({connection: 'live', quiet_ms: 3000}).tone, 'good');
        for (const told of [{connection: 'live', quiet_ms: 60_000}, {connection: 'lost', quiet_ms: 60_000},
                            {connection: 'live', quiet_ms: 500, silent_s: 59.5}]) {
          const {tone, title, detail} = verdict(told);
          equal([tone, title], ['stale', 'The origin has not answered for 60 s'], JSON.stringify(told));
          if (!detail.includes('All 2 workers have version 7. What is shown here is as it was then.'))
            throw new Error(detail);
        }
        equal(Model.livenessOf({connection: 'live', quiet_ms: 60_000}).state, 'silent');
        equal(Model.livenessOf({connection: 'recorded', quiet_ms: 60_000}).state, 'recorded');
      }
    ],
    [
      'while an origin starts again its workers are not yet back',
      () => {
        const fleet = fleetOf([node('a'), node('b', {state: 'awaited'}), node('c', {state: 'awaited'})]);
        Model.applyChange(fleet, {unix_ms: 5000, publications: [publication(7, {state: 'superseded'})]});
        const {tone, title} = Model.verdictOf(fleet);
        equal([tone, title], ['busy', '1 of 3 workers is back since the origin was started']);
        equal(Model.attentionOf(fleet, 0).map((one) => [one.level, one.text]), [
          [1, 'is not yet back since its origin was started']
        ]);
      }
    ],
    [
      'the verdict counts the workers that are connected, as the tile does',
      () => {
        const fleet = fleetOf([node('a'), node('b'), node('c', {state: 'lost'})]);
        Model.applyChange(fleet, {unix_ms: 5000, publications: [publication(7, {workers: 2, installed: 2})]});
        const {tone, title, detail} = Model.verdictOf(fleet);
        equal([tone, title], ['warn', 'All 2 connected workers have version 7']);
        if (!detail.endsWith('1 worker is lost.')) throw new Error(detail);
      }
    ],
    [
      'who is lost is so since a time',
      () => {
        const fleet = fleetOf([node('a', {state: 'lost', lost_unix_ms: 1_000_000})]);
        equal(
            Model.attentionOf(fleet, 1180)[0].text,
            `is not connected since ${Model.clockText(1_000_000)}, for 3 min`);
      }
    ],
    [
      'what happens is listed, the newest first',
      () => {
        const fleet = fleetOf([node('a'), node('b')], []);
        Model.applyChange(fleet, {
          unix_ms: 70_000,
          nodes: [{name: 'a', role: 'worker', state: 'lost', lost_unix_ms: 69_000, last_error: 'silent for 1.0 s'}]
        });
        Model.applyChange(fleet, {unix_ms: 80_000, nodes: [{name: 'a', role: 'worker', state: 'idle', lost_unix_ms: 0}]});
        Model.applyChange(fleet, {unix_ms: 90_000, nodes: [node('c')], nodes_gone: [{name: 'b', role: 'worker'}]});
        Model.applyChange(
            fleet, {unix_ms: 90_000, publications: [publication(8, {published_unix_ms: 75_000, t100_s: 2})]});
        equal(Model.eventsOf(fleet).map((one) => [one.ms, one.text]), [
          [90_000, 'c joined'], [90_000, 'b is forgotten'], [80_000, 'a is back'],
          [77_000, 'version 8 is at all 3 workers, after 2.00 s'], [75_000, 'version 8 published'],
          [69_000, 'a lost: silent for 1.0 s']
        ]);
      }
    ],
    [
      'the bars of a publication that is under way last until now',
      () => {
        const course = (name, told_s) =>
            ({name, payload: 'full', joined_s: null, told_s, installed_s: null, failure: '', phases: null});
        const entry = publication(8, {state: 'under way', take_over_s: 0.5, encode_at_s: 0.5, encode_s: 0});
        const nodes = [
          node('a', {receiving_version: 8, chunks_verified: 3, chunks_total: 9}), node('b'), node('c'), node('d', {state: 'lost'})
        ];
        const rows = Model.waterfallOf(entry, [course('a', 1), course('b', 1)], 4, nodes);
        equal(rows.map((row) => [row.name, row.segments.map(({phase, from, to}) => [phase, from, to])]), [
          ['origin', [['take', 0, 0.5], ['encode', 0.5, 4]]], ['a', [['told', 0, 1], ['received', 1, 4]]],
          ['b', [['told', 0, 1], ['waited', 1, 4]]], ['c', [['told', 0, 4]]]
        ]);
      }
    ],
    [
      'keys that expire within 30 days are named',
      () => {
        const fleet = fleetOf([node('a', {keys_expire_unix_s: 86400 * 40})]);
        equal(Model.attentionOf(fleet, 0), []);
        equal(Model.attentionOf(fleet, 86400 * 11)[0].text, 'its keys expire on 1970-02-10');
      }
    ],
    [
      'phases follow each other from when the worker was told',
      () => {
        const phases = {
          waiting_s: 0,
          asking_s: 0.25,
          receiving_s: 1,
          storing_s: 0.5,
          applying_s: 0,
          switching_s: 0.125,
          engine_s: 0.625,
          given_up_s: 0,
          interrupted_s: 0,
          parents_left: 0,
          disk_behind_s: 0,
          bytes: 4096,
          fed_by: 'a'
        };
        const rows = Model.waterfallOf(
            publication(7),
            [
              {name: 'b', payload: 'full', joined_s: null, told_s: 0.5, installed_s: 2.5, failure: '', phases}, {
                name: 'c',
                payload: 'full',
                joined_s: null,
                told_s: 0.5,
                installed_s: null,
                failure: 'no room',
                phases: null
              }
            ]);
        equal(rows.map((row) => row.name), ['origin', 'c', 'b']);
        equal(rows[0].segments, [{phase: 'take', from: 0, to: 0.5}]);
        equal(rows[2].segments, [
          {phase: 'told', from: 0, to: 0.5}, {phase: 'asked', from: 0.5, to: 0.75},
          {phase: 'received', from: 0.75, to: 1.75}, {phase: 'stored', from: 1.75, to: 2.25},
          {phase: 'switched', from: 2.25, to: 2.375}, {phase: 'engine', from: 2.375, to: 3}
        ]);
        equal([rows[1].remark, rows[1].cause], ['no room', true]);
      }
    ],
    [
      'a moment of a recording shows no more than was known then',
      () => {
        const [row] = Model.rowsUntil(
            [{
              name: 'b',
              end: 3,
              segments: [
                {phase: 'asked', from: 0, to: 1}, {phase: 'received', from: 1, to: 2.5},
                {phase: 'stored', from: 2.5, to: 3}
              ]
            }],
            2);
        equal(
            row,
            {name: 'b', end: null, segments: [{phase: 'asked', from: 0, to: 1}, {phase: 'received', from: 1, to: 2}]});
      }
    ],
    [
      'links show what they carry, and else what they carried in a long transfer',
      () => {
        const fleet = fleetOf(chain());
        const phases = (receiving_s) => ({receiving_s, bytes: 3000});
        Model.takeCourses(
            fleet, [{name: 'b', phases: phases(2)}, {name: 'c', phases: phases(0.01)}, {name: 'd', phases: null}]);
        equal(
            ['b', 'c', 'd'].map((name) => Model.linkOf(fleet, fleet.nodes.get(`worker/${name}`))),
            [{bytes_per_s: 1500, live: false}, null, null]);
        Model.applyChange(fleet, {nodes: [{role: 'worker', name: 'b', receive_bytes_per_s: 7}], unix_ms: 1});
        equal(Model.linkOf(fleet, fleet.nodes.get('worker/b')), {bytes_per_s: 7, live: true});
      }
    ],
    [
      'a forecast is missed by half as much again and half a second',
      () => {
        const of = (predicted_s, t100_s) =>
            Model.forecastsOf([publication(1, {predicted_s, t100_s, take_over_s: 0})]).map((one) => one.missed);
        equal(
            Model
                .forecastsOf(
                    [publication(1, {predicted_s: 1, t100_s: 3, take_over_s: 0.5, encode_s: 1, pack_s: 0.25})])[0]
                .measured,
            1.25);
        equal(
            [of(10, 14), of(10, 16), of(0.01, 0.4), of(0.01, 0.6), of(0, 1), of(1, null)],
            [[false], [true], [false], [true], [], []]);
      }
    ],
    [
      'the table has those who match all words, by any column',
      () => {
        const fleet = fleetOf([...chain(), node('e', {state: 'lost', version: 3, last_error: 'timed out'})]);
        const names = (options) => Model.workerRowsOf(fleet, options).map((row) => row.node.name);
        equal(names({query: 'TIMED lost'}), ['e']);
        equal(names({query: 'timed idle'}), []);
        equal(names({state: 'idle'}), ['a', 'b', 'c', 'd']);
        equal(names({column: 'version'})[0], 'e');
        equal(names({column: 'name', descending: true}), ['e', 'd', 'c', 'b', 'a']);
      }
    ],
    [
      'what a worker costs is what the origin sent for it',
      () => {
        equal(Model.egressOf(publication(7, {workers: 4})), {sent: 8192, per_worker: 2048, copies: 2, star: 16384});
        equal(Model.egressOf(publication(7, {workers: 0})), null);
      }
    ],
    [
      'a question about another fleet begins with the medians of this one',
      () => {
        const rates =
            [2, 4, 8].map((rate, i) => node(`w${i}`, {uplink_bytes_per_s: rate, downlink_bytes_per_s: 2 * rate}));
        equal(
            Model.fleetFiguresOf(
                fleetOf([...rates, node('x', {state: 'lost', uplink_bytes_per_s: 1}), node('y', {state: 'standby'})])),
            {workers: 3, uplink: null, peer_uplink: 4, peer_downlink: 8, bytes: 4096});
      }
    ],
    [
      'the learner without a step, or without prices, has no invented figures',
      () => {
        equal(Model.learnerOf(null), null);
        const none = Model.learnerOf({version: 0, workers: []});
        equal([none.reward, none.cost_per_step, none.price_per_hour, none.rollouts_per_s], [null, null, null, 0]);
        const free =
            Model.learnerOf({version: 4, metrics: {'training/global_step': 4, cost_total: 0}, workers: []});
        equal([free.cost_per_step, free.cost_total], [null, null]);
        const some = Model.learnerOf({
          version: 4,
          metrics: {'training/global_step': 4, 'critic/score/mean': 0.5, cost_total: 2, bubble_ratio: null},
          workers: [
            {name: 'a', active: true, rollouts_per_s: 1.5, price_per_hour: 0.25},
            {name: 'b', active: false, rollouts_per_s: 9, price_per_hour: 3},
            {name: 'c', active: true, silent_s: 16, rollouts_per_s: 7, price_per_hour: 2}
          ]
        });
        equal(
            [some.reward, some.cost_per_step, some.price_per_hour, some.rollouts_per_s, some.active, some.bubble],
            [0.5, 0.5, 0.25, 1.5, 1, null]);
      }
    ],
    [
      'numbers are written with their units',
      () => {
        equal(
            [0, 1023, 1024, 1536 * 1024, 150 * 1024, 3 * 2 ** 40].map(Model.bytesText),
            ['0 B', '1023 B', '1.00 KiB', '1.50 MiB', '150 KiB', '3.00 TiB']);
        equal(
            [125, 125e3, 1.25e6, 12.5e6, 125e6].map(Model.rateText),
            ['1.00 kbit/s', '1.00 Mbit/s', '10.0 Mbit/s', '100 Mbit/s', '1.00 Gbit/s']);
        equal(
            [null, 0, 9.994, 12.34, 100, 700, 7200].map(Model.secondsText),
            ['–', '0.00 s', '9.99 s', '12.3 s', '100 s', '12 min', '2.0 h']);
        equal([0, 0.0004, 0.05, 0.5, 1].map(Model.percentText), ['0 %', '0.040 %', '5.0 %', '50 %', '100 %']);
      }
    ],
  ];
}
if (typeof module !== 'undefined') module.exports = {modelTests};
