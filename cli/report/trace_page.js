/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline of a report comes to life: it zooms, pans and tells what an interval was. Without this script the
   page shows the whole run and says everything else. Nothing is loaded; the spans are in the page, packed as
   cli/report/trace_spans.c describes. */
(function () {
  'use strict';
  var box = document.getElementById('timeline');
  var metaText = document.getElementById('trace-meta');
  if (!box || !metaText)
    return;
  var meta = JSON.parse(metaText.textContent);
  var wall = meta.wall_ns;
  var lanes = readSpans(atob(document.getElementById('trace-spans').textContent.trim()));
  var from = 0, to = wall;           /* what is shown, ns */
  var least = Math.min(200, wall);   /* the narrowest view, ns */
  var marked = null;                 /* the span that the pointer is on */
  var drawn = false;                 /* a redraw is under way */

  /* ---- the data ---- */

  function readSpans(text) {
    var at = 0, all = [], nr, i;
    function number() {
      var value = 0, factor = 1, byte;
      do {
        byte = text.charCodeAt(at++);
        value += (byte & 127) * factor;
        factor *= 128;
      } while (byte & 128);
      return value;
    }
    function row(count) {
      var r = { n: count, start: new Float64Array(count), ns: new Float64Array(count),
                busy: new Float64Array(count), bytes: new Float64Array(count), version: new Float64Array(count),
                label: new Uint32Array(count), count: new Uint32Array(count), flags: new Uint8Array(count), longest: 0 };
      var start = 0, version = 0, k, step;
      for (k = 0; k < count; k++) {
        r.flags[k] = number();
        start += number();
        r.start[k] = start;
        r.busy[k] = r.ns[k] = number();
        r.label[k] = number();
        r.bytes[k] = number();
        r.count[k] = 1;
        if (r.flags[k] & 32) {
          r.count[k] = number();
          r.busy[k] = number();
        }
        if (r.flags[k] & 64) {
          step = number();
          version += step % 2 ? -(step + 1) / 2 : step / 2;
          r.version[k] = version;
        }
        r.longest = Math.max(r.longest, r.ns[k]);
      }
      return r;
    }
    for (i = 0; i < meta.lanes.length; i++)
      all.push({ name: meta.lanes[i], rows: [] });
    for (nr = number(), i = 0; i < nr; i++) {
      var lane = all[number()];
      number();                      /* rows of the lane */
      lane.rows.push(row(number()));
    }
    return all;
  }

  /* The first span that may reach into the time t. In a row spans begin in order, and none is longer than the
     longest. */
  function firstAt(row, t) {
    var low = 0, high = row.n, mid;
    t -= row.longest;
    while (low < high) {
      mid = (low + high) >> 1;
      if (row.start[mid] < t) low = mid + 1; else high = mid;
    }
    return low;
  }

  /* ---- words ---- */

  function seconds(ns) {
    var units = ['ns', '\u00b5s', 'ms', 's'], i = 0, x = ns;
    while (i < 3 && Math.abs(x) >= 999.5) { x /= 1000; i++; }
    return (i === 0 ? Math.round(x) : x >= 99.95 ? x.toFixed(0) : x >= 9.995 ? x.toFixed(1) : x.toFixed(2)) + ' ' + units[i];
  }
  function amount(bytes) {
    var units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'], i = 0, x = bytes;
    while (i < 4 && x >= 1023.5) { x /= 1024; i++; }
    return (i === 0 ? x : x >= 99.95 ? x.toFixed(0) : x >= 9.995 ? x.toFixed(1) : x.toFixed(2)) + ' ' + units[i];
  }
  /* A moment, with as many digits as the view can show. */
  function moment(ns, step) {
    var digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / 1e9) - 1e-9)));
    return (ns / 1e9).toFixed(digits) + ' s';
  }
  function describe(lane, row, k) {
    var kind = meta.kinds[row.flags[k] & 15], text = lane.name + ': ';
    if (row.count[k] > 1)
      text += row.count[k] + ' \u00d7 ' + kind.title;
    else if (row.label[k] && (row.flags[k] & 15) === meta.phase)
      text += meta.labels[row.label[k]];
    else
      text += kind.title;
    if (row.count[k] === 1 && row.flags[k] & 64)
      text += '\n' + (row.label[k] ? meta.labels[row.label[k]] + ' ' : '') + 'version ' + row.version[k];
    text += '\n' + seconds(row.ns[k]) + ' from ' + moment(row.start[k], (to - from) / 1000);
    if (row.count[k] > 1)
      text += ', busy ' + seconds(row.busy[k]);
    if (row.bytes[k])
      text += '\n' + amount(row.bytes[k]) + (row.busy[k] ? ', ' + (row.bytes[k] / row.busy[k]).toPrecision(3) + ' GB/s' : '');
    if (row.flags[k] & 16)
      text += '\nfailed';
    return text;
  }

  /* ---- drawing ---- */

  var dark = window.matchMedia('(prefers-color-scheme: dark)');
  var bars = Array.prototype.slice.call(box.querySelectorAll('.tl-bars'));
  var ticks = box.querySelector('.ticks');
  var canvases = bars.map(function (bar) {
    var canvas = document.createElement('canvas');
    canvas.setAttribute('aria-hidden', 'true');
    bar.textContent = '';
    bar.appendChild(canvas);
    return canvas;
  });

  /* For each column the share of its time that each kind was busy; then the shares stacked. */
  function drawRow(g, row, y, height, width, ratio, paper, ink) {
    var scale = width / (to - from), kinds = meta.kinds.length, share = [], edges = [], words = [], k, c, i;
    var least = Math.min(1, 3 * ratio / height), lastKind = -1, lastEnd = 0;
    for (i = 0; i < kinds; i++)
      share.push(null);
    for (k = firstAt(row, from); k < row.n && row.start[k] < to; k++) {
      var a = (row.start[k] - from) * scale, b = a + row.ns[k] * scale, kind = row.flags[k] & 15;
      if (b <= 0)
        continue;
      var density = row.ns[k] ? row.busy[k] / row.ns[k] : 0, column = share[kind] || (share[kind] = new Float32Array(width));
      for (c = Math.max(0, Math.floor(a)); c < width && c < b; c++)
        column[c] += density * (Math.min(b, c + 1) - Math.max(a, c));
      if (b - a > 5 && kind === lastKind && a - lastEnd < 1.5)
        edges.push(a);                 /* one ends where the next of its kind begins */
      lastKind = kind;
      lastEnd = b;
      if (b - a > 40 && row.label[k] && row.count[k] === 1 && kind === meta.phase)
        words.push([Math.max(a, 0), Math.min(b, width), meta.labels[row.label[k]]]);
      if (row.flags[k] & 16)
        words.push([Math.max(a, 0), Math.max(b, a + 8), '!']);
    }
    var sum = new Float32Array(width);
    /* Computing, the first kind, comes on top; whatever else was there can be seen, however short it was. */
    for (i = kinds - 1; i >= 0; i--) {
      if (!share[i])
        continue;
      g.fillStyle = meta.kinds[i].colour;
      for (c = 0; c < width; ) {
        var low = sum[c], mine = share[i][c], high = mine ? Math.min(1, low + Math.max(mine, least)) : low, n = c + 1;
        while (n < width && sum[n] === low && share[i][n] === mine)
          n++;
        if (high > low)
          g.fillRect(c, y + height * (1 - high), n - c, height * (high - low));
        for (; c < n; c++)
          sum[c] = high;
      }
    }
    g.fillStyle = paper;
    edges.forEach(function (x) { g.fillRect(Math.round(x), y, 1, height); });
    g.fillStyle = ink;
    words.forEach(function (w) {
      g.save();
      g.beginPath();
      g.rect(w[0], y, w[1] - w[0], height);
      g.clip();
      g.fillText(w[2], w[0] + 4, y + height / 2);
      g.restore();
    });
  }

  function drawLane(i) {
    var canvas = canvases[i], ratio = window.devicePixelRatio || 1;
    var width = Math.max(1, Math.round(bars[i].clientWidth * ratio)), height = Math.max(1, Math.round(bars[i].clientHeight * ratio));
    var g = canvas.getContext('2d'), rows = lanes[i].rows, h = height / Math.max(1, rows.length);
    if (canvas.width !== width) canvas.width = width;
    if (canvas.height !== height) canvas.height = height;
    g.clearRect(0, 0, width, height);
    g.font = Math.round(12 * ratio) + 'px system-ui, sans-serif';
    g.textBaseline = 'middle';
    rows.forEach(function (row, r) {
      drawRow(g, row, r * h, h, width, ratio, dark.matches ? '#161b22' : '#f6f8fa', '#1f2328');
    });
    if (marked && marked.lane === i) {
      var s = lanes[i].rows[marked.row], x = (s.start[marked.k] - from) / (to - from) * width;
      g.strokeStyle = dark.matches ? '#ffffff' : '#000000';
      g.lineWidth = 2 * ratio;
      g.strokeRect(x, marked.row * h + ratio, Math.max(2, s.ns[marked.k] / (to - from) * width), h - 2 * ratio);
    }
  }

  function drawTicks() {
    var width = ticks.clientWidth, most = Math.max(2, Math.floor(width / 95)), raw = (to - from) / most;
    var unit = Math.pow(10, Math.floor(Math.log10(raw))), step = [1, 2, 5, 10].filter(function (m) { return m * unit >= raw; })[0] * unit;
    ticks.textContent = '';
    for (var t = Math.ceil(from / step) * step; t <= to; t += step) {
      var at = (t - from) / (to - from) * width, tick = document.createElement('span');
      tick.textContent = moment(t, step);
      tick.style.left = at / width * 100 + '%';
      if (at < 24) { tick.style.transform = 'none'; }
      if (at > width - 24) { tick.style.transform = 'translateX(-100%)'; }
      ticks.appendChild(tick);
    }
  }

  function redraw() {
    if (drawn)
      return;
    drawn = true;
    requestAnimationFrame(function () {
      drawn = false;
      for (var i = 0; i < lanes.length; i++)
        drawLane(i);
      drawTicks();
      thumb.style.marginLeft = from / wall * 100 + '%';
      thumb.style.width = (to - from) / wall * 100 + '%';
      shown.textContent = from <= 0 && to >= wall ? 'the whole run, ' + seconds(wall)
        : moment(from, (to - from) / 100) + ' to ' + moment(to, (to - from) / 100) + ' (' + seconds(to - from) + ')';
      box.dataset.from = Math.round(from);
      box.dataset.to = Math.round(to);
    });
  }

  /* ---- the view ---- */

  function show(a, b) {
    var span = Math.min(wall, Math.max(least, b - a)), middle = (a + b) / 2;
    a = Math.min(Math.max(0, middle - span / 2), wall - span);
    from = a;
    to = a + span;
    redraw();
  }
  function zoom(factor, share) {
    var at = from + (to - from) * share, span = Math.min(wall, Math.max(least, (to - from) * factor));
    show(at - span * share, at + span * (1 - share));
  }
  function pan(share) {
    var by = Math.min(Math.max((to - from) * share, -from), wall - to);
    show(from + by, to + by);
  }
  function shareOf(x) {
    var r = bars[0].getBoundingClientRect();
    return Math.min(1, Math.max(0, (x - r.left) / r.width));
  }

  /* ---- what is under the pointer ---- */

  var tip = document.createElement('div');
  tip.className = 'tl-tip';
  tip.hidden = true;
  tip.setAttribute('role', 'status');
  box.appendChild(tip);

  function find(x, y) {
    var slack = 3 * (to - from) / Math.max(1, bars[0].clientWidth), t = from + (to - from) * shareOf(x), best = null;
    bars.forEach(function (bar, i) {
      var r = bar.getBoundingClientRect();
      if (y < r.top || y >= r.bottom || x < r.left || x > r.right)
        return;
      var rows = lanes[i].rows, n = Math.min(rows.length - 1, Math.floor((y - r.top) / r.height * rows.length)), row = rows[n];
      if (!row)
        return;
      var near = slack;
      for (var k = firstAt(row, t - slack); k < row.n && row.start[k] <= t + slack; k++) {
        var away = Math.max(row.start[k] - t, t - row.start[k] - row.ns[k], 0);
        if (away < near || (away === 0 && near === 0 && row.ns[k] < rows[best.row].ns[best.k])) {
          near = away;
          best = { lane: i, row: n, k: k };
        }
      }
    });
    return best;
  }
  function point(x, y) {
    var was = marked;
    marked = find(x, y);
    if (marked) {
      var r = box.getBoundingClientRect();
      tip.textContent = describe(lanes[marked.lane], lanes[marked.lane].rows[marked.row], marked.k);
      tip.hidden = false;
      tip.style.left = Math.max(0, Math.min(x - r.left + 14, r.width - tip.offsetWidth - 2)) + 'px';
      tip.style.top = (y - r.top + 18) + 'px';
    } else {
      tip.hidden = true;
    }
    if ((was || marked) && !(was && marked && was.lane === marked.lane && was.row === marked.row && was.k === marked.k))
      redraw();
  }
  function unpoint() {
    tip.hidden = true;
    if (marked) { marked = null; redraw(); }
  }

  /* ---- mouse, fingers, keys, buttons ---- */

  var pointers = {}, moved = 0, scrolled = 0;
  /* A scroll of the page that comes across the timeline goes on; one that begins here zooms. Zoomed out as far as it
     goes, the wheel scrolls the page. */
  window.addEventListener('wheel', function (e) {
    if (!e.target.closest || !e.target.closest('.tl-bars'))
      scrolled = e.timeStamp;
  }, { passive: true });
  function onWheel(e) {
    if (e.timeStamp - scrolled < 250) { scrolled = e.timeStamp; return; }
    if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      e.preventDefault();
      pan(e.deltaX / Math.max(1, bars[0].clientWidth));
    } else if (e.deltaY < 0 || to - from < wall) {
      e.preventDefault();
      zoom(Math.exp(Math.max(-1, Math.min(1, e.deltaY / 300))), shareOf(e.clientX));
    }
    unpoint();
  }
  function list() { return Object.keys(pointers).map(function (id) { return pointers[id]; }); }
  function onDown(e) {
    if (e.pointerType === 'mouse' && e.button !== 0)
      return;
    pointers[e.pointerId] = { x: e.clientX, y: e.clientY };
    moved = list().length > 1 ? 99 : 0;
    this.setPointerCapture(e.pointerId);
  }
  function onMove(e) {
    var p = pointers[e.pointerId], all, other, before, after, width = Math.max(1, bars[0].clientWidth);
    if (!p) {
      if (e.pointerType === 'mouse')
        point(e.clientX, e.clientY);
      return;
    }
    all = list();
    moved += Math.abs(e.clientX - p.x);
    if (all.length === 2) {
      other = all[0] === p ? all[1] : all[0];
      before = Math.max(10, Math.abs(p.x - other.x));
      after = Math.max(10, Math.abs(e.clientX - other.x));
      zoom(before / after, shareOf((e.clientX + other.x) / 2));
      pan(-(e.clientX - p.x) / 2 / width);
    } else if (moved > 3) {
      box.classList.add('panning');
      unpoint();
      pan((p.x - e.clientX) / width);
    }
    p.x = e.clientX;
    p.y = e.clientY;
  }
  function onUp(e) {
    if (pointers[e.pointerId] && moved <= 3 && e.type === 'pointerup')
      point(e.clientX, e.clientY);
    delete pointers[e.pointerId];
    box.classList.remove('panning');
  }
  function onTwice(e) {
    var f = find(e.clientX, e.clientY), row;
    if (!f)
      return zoom(0.3, shareOf(e.clientX));
    row = lanes[f.lane].rows[f.row];
    show(row.start[f.k] - row.ns[f.k] * 0.25, row.start[f.k] + row.ns[f.k] * 1.25);
  }
  bars.forEach(function (bar) {
    bar.addEventListener('wheel', onWheel, { passive: false });
    bar.addEventListener('pointerdown', onDown);
    bar.addEventListener('pointermove', onMove);
    bar.addEventListener('pointerup', onUp);
    bar.addEventListener('pointercancel', onUp);
    bar.addEventListener('pointerleave', function (e) { if (e.pointerType === 'mouse') unpoint(); });
    bar.addEventListener('dblclick', onTwice);
  });

  var actions = {
    'in': function () { zoom(0.5, 0.5); },
    'out': function () { zoom(2, 0.5); },
    'left': function () { pan(-0.25); },
    'right': function () { pan(0.25); },
    'reset': function () { show(0, wall); }
  };
  var keys = { '+': 'in', '=': 'in', 'w': 'in', '-': 'out', 's': 'out', 'ArrowLeft': 'left', 'a': 'left',
               'ArrowRight': 'right', 'd': 'right', '0': 'reset', 'Home': 'reset', 'Escape': 'reset' };
  box.addEventListener('keydown', function (e) {
    if (e.ctrlKey || e.altKey || e.metaKey || !keys[e.key])
      return;
    e.preventDefault();
    unpoint();
    actions[keys[e.key]]();
  });

  var tools = document.getElementById('timeline-tools'), shown = tools.querySelector('output');
  var thumb = document.createElement('div'), where = document.createElement('div');
  where.className = 'tl-where';
  where.appendChild(thumb);
  box.insertBefore(where, box.firstChild);
  Array.prototype.forEach.call(tools.querySelectorAll('button'), function (b) {
    b.addEventListener('click', function () { unpoint(); actions[b.dataset.action](); });
  });
  /* Waits in the table below can be looked at. */
  Array.prototype.forEach.call(document.querySelectorAll('[data-show]'), function (cell) {
    var at = cell.dataset.show.split(' '), b = document.createElement('button');
    b.type = 'button';
    b.textContent = 'show';
    b.setAttribute('aria-label', 'show in the timeline: ' + cell.dataset.what);
    b.addEventListener('click', function () {
      var start = +at[0], ns = Math.max(1, +at[1]);
      show(start - ns, start + 2 * ns);
      box.scrollIntoView({ block: 'center' });
      box.focus({ preventScroll: true });
    });
    cell.appendChild(b);
  });
  Array.prototype.forEach.call(document.querySelectorAll('.js-only'), function (e) { e.hidden = false; });

  tools.hidden = false;
  box.classList.add('live');
  box.tabIndex = 0;
  window.addEventListener('resize', redraw);
  window.addEventListener('beforeprint', redraw);
  if (dark.addEventListener)
    dark.addEventListener('change', redraw);
  redraw();
}());
