// Where the page's data comes from: the daemon that serves it, or the recording inside the file that `./run demo`
// leaves. Both give: start(listener), publication(version) and plan(query), which are promises, and isRecording. The
// listener gets handleState, handleChange, handleHeartbeat, handleLearner(status, atMs) and handleConnection('live' | 'lost' |
// 'recorded').
const Source = (() => {
  'use strict';

  const LEARNER_EVERY_MS = 2000;

  async function json(path, limitMs) {
    const response = await fetch(path, {signal: AbortSignal.timeout(limitMs), cache: 'no-store'});
    const body = await response.json().catch(() => null);
    if (response.ok) return body;
    const error =
        new Error(body && body.error && body.error.message ? body.error.message : `${path}: status ${response.status}`);
    error.status = response.status;
    throw error;
  }

  function live() {
    function start(listener) {
      const events = new EventSource('events');
      const take = (handle) => (event) => {
        listener.handleConnection('live');
        handle(JSON.parse(event.data));
      };
      events.addEventListener('state', take(listener.handleState));
      events.addEventListener('change', take(listener.handleChange));
      events.addEventListener('heartbeat', take(listener.handleHeartbeat));
      events.addEventListener('open', () => listener.handleConnection('live'));
      events.addEventListener('error', () => {
        listener.handleConnection('lost');
        // The browser tries again by itself, unless the daemon refused.
        if (events.readyState === EventSource.CLOSED) setTimeout(() => start(listener), 3000);
      });
      if (!isAsking) {
        isAsking = true;
        askLearner(listener);
      }
    }

    let isAsking = false;

    // A daemon that knows of no learner says 404 once and for all.
    async function askLearner(listener) {
      try {
        if (!document.hidden) listener.handleLearner(await json('learner', 5000), Date.now());
      } catch (error) {
        if (error.status === 404) return;
        listener.handleLearner(null, Date.now());
      }
      setTimeout(() => askLearner(listener), LEARNER_EVERY_MS);
    }

    return {
      isRecording: false,
      start,
      publication: (version) => json(`publications/${version}`, 10000),
      plan: (query) => json(`plan?${new URLSearchParams(query)}`, 10000),
    };
  }

  /// `recording`: {events: [{event: 'state' | 'change' | 'learner', data}], publications: {version: reply}, plan:
  /// reply}, where each data has unix_ms. `plan` is of the fleet as it was, and may be missing.
  function recorded(recording) {
    const {events, publications} = recording;
    const atMs = (index) => events[index].data.unix_ms;

    /// Tells what was known after event number `index`.
    function show(listener, index) {
      for (let i = 0; i <= index; ++i) {
        const {event, data} = events[i];
        if (event === 'state')
          listener.handleState(structuredClone(data));
        else if (event === 'change')
          listener.handleChange(structuredClone(data));
        else
          listener.handleLearner(data, data.unix_ms);
      }
    }

    return {
      isRecording: true,
      length: events.length,
      atMs,
      show,
      /// The index of the last event at `ms`.
      indexAt: (ms) => Math.max(0, events.findLastIndex((event) => event.data.unix_ms <= ms)),
      start(listener) {
        listener.handleConnection('recorded');
        show(listener, events.length - 1);
      },
      async publication(version) {
        const reply = publications[version];
        if (!reply) throw new Error(`the recording does not have the workers of version ${version}`);
        return reply;
      },
      async plan() {
        if (!recording.plan) throw new Error('this page is a recording; a daemon with --http answers here');
        return recording.plan;
      },
    };
  }

  function open() {
    const element = document.getElementById('recording');
    return element ? recorded(JSON.parse(element.textContent)) : live();
  }

  return {open};
})();
