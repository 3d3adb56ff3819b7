// Elements, text and the one tooltip. Text from data becomes text nodes and attributes, never HTML.
const Dom = (() => {
  'use strict';

  const byId = (id) => document.getElementById(id);

  /// An element with attributes (on...: listeners) and children: elements or text.
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith('on'))
        element.addEventListener(name.slice(2), value);
      else if (value === true)
        element.setAttribute(name, '');
      else if (value !== false && value !== null && value !== undefined)
        element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  /// Sets attributes of D3's `selection` to values or to what functions make of its data; and its text, if there is
  /// one.
  function set(selection, attributes, text) {
    for (const [name, value] of Object.entries(attributes)) selection.attr(name, value);
    return text === undefined ? selection : selection.text(text);
  }
  /// One element below D3's `parent`, or one for each of `data`.
  const draw = (parent, tag, attributes, text) => set(parent.append(tag), attributes, text);
  const drawEach = (parent, tag, data, attributes, text) =>
      set(parent.selectAll(tag).data(data).join(tag), attributes, text);

  /// Sets text that has changed: what has not costs no layout.
  function setText(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  const replace = (element, ...children) => element.replaceChildren(...children.filter((child) => child !== null));

  /// <li><swatch>label: of a legend.
  function legend(element, entries) {
    const key = JSON.stringify(entries);
    if (element.drawn === key) return;
    element.drawn = key;
    replace(
        element,
        ...entries.map(
            ({swatch, label, title}) =>
                make('li', {title}, make('span', {class: `swatch ${swatch}`, 'aria-hidden': 'true'}), label)));
  }

  function showTip(text, x, y) {
    const tip = byId('tip');
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 14 + box.width > innerWidth ? Math.max(4, x - 14 - box.width) : x + 14;
    const top = y + 14 + box.height > innerHeight ? Math.max(4, y - 14 - box.height) : y + 14;
    tip.style.left = `${left}px`;
    tip.style.top = `${top}px`;
  }

  const hideTip = () => {
    byId('tip').hidden = true;
  };

  /// Tips of what lies below `container`: `text(element, event)` gives one, or '' for none.
  function tipsOf(container, text) {
    container.addEventListener('pointermove', (event) => {
      const words = text(event.target, event);
      if (words)
        showTip(words, event.clientX, event.clientY);
      else
        hideTip();
    });
    container.addEventListener('pointerleave', hideTip);
    container.addEventListener('focusin', (event) => {
      if (!event.target.matches(':focus-visible')) return;
      const words = text(event.target, event);
      const box = event.target.getBoundingClientRect();
      if (words) showTip(words, box.right - 6, box.bottom - 6);
    });
    container.addEventListener('focusout', hideTip);
  }

  return {byId, make, set, draw, drawEach, setText, replace, legend, showTip, hideTip, tipsOf};
})();
