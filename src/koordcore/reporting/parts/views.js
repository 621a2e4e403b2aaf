// One function per view; each gives the elements of its page for the state that the address names.

function matcher(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return null;
  return (told) => words.every((word) => told.includes(word));
}
const podText = (who) => (typeof who === "string" ? who : `${podName(who)} ${jobText(D.pods[who][3])}`).toLowerCase();
let nodeTexts = null;
function nodeText(row) {
  nodeTexts = nodeTexts || D.nodes.map((node, number) => {
    const pods = podsOn[number].map(podText);
    return [node.n, text(node.m), domainPath(number), node.x || "", ...pods].join(" ").toLowerCase();
  });
  return nodeTexts[row];
}

// --- the cluster -----------------------------------------------------------------------------------------

const NET = D.network;
const domainOf = new Map(NET ? NET.nodes : []);
function domainPath(row) {
  const path = [];
  for (let at = domainOf.get(row); NET && at !== undefined && at >= 0; at = NET.domains[at][2]) path.unshift(NET.domains[at][0]);
  return path.filter(Boolean).join(" / ");
}
function tree(rows) {
  const kids = new Map(), leaves = new Map();
  for (const row of rows) {
    let at = domainOf.has(row) ? domainOf.get(row) : -1;
    if (!leaves.has(at)) leaves.set(at, []);
    leaves.get(at).push(row);
    while (at >= 0) {
      const above = NET.domains[at][2];
      if (!kids.has(above)) kids.set(above, new Set());
      if (kids.get(above).has(at)) break;
      kids.get(above).add(at);
      at = above;
    }
  }
  return { kids, leaves };
}
const TAIL = (() => {
  const dots = D.nodes.map((node) => node.n.indexOf("."));
  const tails = new Set(D.nodes.map((node, row) => (dots[row] > 0 ? node.n.slice(dots[row]) : "")));
  return tails.size === 1 && D.nodes.length > 1 ? [...tails][0] : "";
})();
function nodeTile(row, options = {}) {
  const node = D.nodes[row];
  const cards = mainCards(options.cards || node.c);
  const vain = !options.cards && inVain(row);
  const names = D.resources.names, cpu = names.indexOf("cpu");
  const whole = cpu < 0 ? 0 : D.resources.whole[cpu][row];
  const used = whole ? Math.min(100, (100 * D.resources.used[cpu][row]) / whole) : 0;
  const loads = (options.loads || []).map(([name, load, limit]) =>
    h("span", { class: load > limit ? "bad" : "dim", style: "display:block;font-size:.8rem" },
      `${name} ${load / 10} % of ${limit / 10} %`));
  return h("button", { class: node.x ? "node barred" : "node", type: "button", "data-node": node.n,
    onclick: () => go({ node: node.n, pod: "" }) },
    h("b", { title: node.n }, node.n.slice(0, node.n.length - TAIL.length)), node.x && h("span", { class: "state" }, node.x),
    cards.length > 0 && h("span", { class: "cards" }, cards.slice(0, 64).map((card) => drawCard(card, { vain, hit: options.hit }))),
    cards.length > 64 && h("span", { class: "dim" }, `and ${cards.length - 64} more`), loads,
    !options.cards && h("span", { class: "bar thin", style: "display:block", title: `${Math.round(used)} % of its CPUs are requested` },
      h("i", { style: `width:${used}%` })));
}
function grid(rows, hit) {
  const box = h("div", { class: "grid" });
  const per = Math.max(1, Math.floor((Math.min(innerWidth, 1760) - 60) / 160));
  const lines = Math.ceil(Math.max(1, ...rows.slice(0, 32).map((row) => mainCards(D.nodes[row].c).length)) / 8);
  return later(box, Math.ceil(rows.length / per) * (44 + 18 * Math.min(lines, 8)), () => box.append(...rows.map((row) => nodeTile(row, { hit }))));
}
function sumText(sums) {
  const parts = [plural(sums.nodes, "node")];
  if (sums.cards) {
    parts.push(`${cardsText(sums.cards * WHOLE - sums.idle - sums.broken * WHOLE)} of ${sums.cards} cards in use`);
    if (sums.vain >= 10) parts.push(`${cardsText(sums.vain)} idle in vain`);
  }
  return parts.join(" · ");
}
function domainView(at, parts, hit) {
  const below = [...(parts.kids.get(at) || [])].sort((a, b) => a - b);
  const own = parts.leaves.get(at) || [];
  const all = [], stack = [at];
  while (stack.length) { const one = stack.pop(); all.push(...(parts.leaves.get(one) || [])); stack.push(...(parts.kids.get(one) || [])); }
  const [name, depth] = NET.domains[at];
  const inside = [own.length > 0 && grid(own, hit),
    below.length > 0 && h("div", { class: depth === 0 ? "kids top" : "kids" }, below.map((one) => domainView(one, parts, hit)))];
  if (depth === 0) return h("div", null, inside);
  // Small domains stand side by side, large ones take the line.
  const width = below.length || own.length > 6 ? "100%" : `${11.1 * Math.max(2, own.length)}rem`;
  return h("details", { class: "domain", open: true, style: `flex: 0 1 ${width}` },
    h("summary", null, h("b", null, name), h("span", { class: "dim" }, NET.layers[depth - 1], " · ", sumText(addUp(all)))), inside);
}
const SHOWN = {
  all: ["all", () => true],
  idle: ["with idle cards", (row) => SUMS[row].idle > 0],
  vain: ["idle in vain", inVain],
  barred: ["cordoned or not ready", (row) => Boolean(D.nodes[row].x)],
};
function clusterView(state) {
  const find = matcher(state.q);
  const every = D.nodes.map((_, row) => row);
  const shown = SHOWN[state.show] ? state.show : "all";
  const rows = every.filter((row) => SHOWN[shown][1](row) && (!find || find(nodeText(row))));
  const hit = find && rows.some((row) => podsOn[row].some((pod) => find(podText(pod)))) ? (who) => find(podText(who)) : null;
  const sums = addUp(every), used = sums.cards * WHOLE - sums.idle - sums.broken * WHOLE;
  const whole = Math.max(1, sums.cards * WHOLE);
  const barred = every.filter(SHOWN.barred[1]).length;
  const count = (kind) => D.queue.filter((one) => one.o === kind).length;
  const tile = (number, told, ...rest) => h("div", { class: "tile" }, h("b", null, number), h("span", null, told), rest);
  const tiles = [tile(sums.nodes.toLocaleString("en"), barred ? `nodes, ${barred} of them cordoned or not ready` : "nodes"),
    sums.cards > 0 && tile(`${cardsText(used)} of ${sums.cards}`, `cards in use, ${cardsText(sums.idle)} idle${sums.broken ? `, ${sums.broken} broken` : ""}`,
      h("div", { class: "bar" }, h("i", { style: `width:${(100 * used) / whole}%` }), h("i", { class: "hatch", style: `width:${(100 * sums.vain) / whole}%` }))),
    sums.vain >= 10 && tile(cardsText(sums.vain), "cards idle in vain: the pods of this cluster could not use them where they are"),
    tile(sums.pods.toLocaleString("en"), "pods on nodes"),
    D.queue.length > 0 && tile(D.queue.length.toLocaleString("en"), ["placed", "nominated", "waiting", "no place", "not ours", "pending"]
      .filter((kind) => count(kind)).map((kind) => `${count(kind)} ${kind}`).join(", ") + " in the queue")];
  const gang = D.jobs.findIndex(([kind]) => kind === "gang");
  const sample = (state_, uses, options) => drawCard(["", 0, -1, 0, state_, ...uses], options);
  const legend = sums.cards > 0 && h("div", { class: "legend" },
    h("span", null, h("i", { class: "card full", style: `background:${colours.get(gang < 0 ? 0 : gang) || "var(--lone)"}` }), "whole card of a gang or workload (one colour each)"),
    h("span", null, sample(0, [["", WHOLE]]), "of a pod by itself"), h("span", null, sample(0, [["", 500]]), "shared"),
    h("span", null, sample(2, [["", 500]]), "partitioned"), h("span", null, sample(0, []), "idle"),
    h("span", null, sample(0, [], { vain: true }), "idle in vain"), h("span", null, sample(1, []), "broken"),
    UNSURE && (SURE ? h("span", null, sample(0, [["", WHOLE, 0]]), "which card is not known")
      : h("span", null, "device plugins do not tell which card a pod has: each is drawn with the lowest free ones")));
  const chips = h("div", { class: "row" }, Object.entries(SHOWN).filter(([key, [, holds]]) => key === "all" || every.some(holds)).map(([key, [told, holds]]) =>
    h("button", { class: "chip", type: "button", "aria-pressed": String(shown === key), onclick: () => go({ show: key }) }, told,
      h("small", null, every.filter(holds).length))));
  const parts = tree(rows);
  const outside = parts.leaves.get(-1) || [];
  const chunks = [];
  for (let start = 0; start < outside.length; start += 120) chunks.push(grid(outside.slice(start, start + 120), hit));
  return [h("div", { class: "tiles" }, tiles), legend, chips,
    find && rows.length > 0 && h("p", { class: "dim" }, `${plural(rows.length, "node")} with “${state.q}” in a name, of a pod or of the node`),
    NET && h("p", { class: "dim" }, `network: ${NET.source}`),
    TAIL && h("p", { class: "dim" }, `names of nodes end in ${TAIL}`),
    NET && rows.length > outside.length && domainView(0, parts, hit),
    outside.length > 0 && h("section", null, NET && h("h3", null, "outside the network"), chunks),
    !rows.length && h("p", null, "No node is like that.")];
}

// --- the queue -------------------------------------------------------------------------------------------

const TONES = { placed: "good", nominated: "warn", waiting: "warn", "no place": "bad", "not ours": "dim", pending: "dim" };
const badge = (told) => h("span", { class: `badge ${TONES[told] || "warn"}` }, told);
function cell(label, given, ...inside) {
  const told = inside.flat(Infinity).filter((one) => one !== "" && one !== null && one !== undefined && one !== false);
  return h("td", { "data-label": label, ...given }, told.length > 0 && h("div", null, told));
}
const toPod = (who, told) => (typeof who === "string" ? told || who
  : h("button", { class: "link", type: "button", onclick: () => go({ pod: podName(who), node: "" }) }, told || podName(who)));
const toNode = (row) => (row === undefined || row === -1 ? ""
  : typeof row === "string" ? row : h("button", { class: "link", type: "button", onclick: () => go({ node: nodeName(row), pod: "" }) }, nodeName(row)));
function nearText(near) {
  if (!near || near[0] < 0) return "";
  const lacks = near.slice(1).map(([reason, resource, lacking]) => (lacking ? `lacks ${amount(resource, lacking)} ${short(resource)}` : reason));
  return `nearest: ${nodeName(near[0])}, ${lacks.join(", ")}`;
}
function startText(one) {
  if (one.s === undefined) return "";
  return one.s === "" ? "not in sight" : one.s.replace("T", " ").replace("Z", " UTC");
}
function grouped(queue) {
  const groups = new Map();
  for (const [place, one] of queue) {
    const pod = typeof one.p === "string" ? null : D.pods[one.p];
    const key = pod && pod[3] >= 0 ? JSON.stringify([pod[3], one.o, one.w, one.near, one.s, pod[4]]) : `${place}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push([place, one]);
  }
  return [...groups.values()];
}
const turnText = (one, place) => (one.t === undefined ? place + 1 : one.t || "");
function queueRow(group) {
  const [place, one] = group[0];
  const pod = typeof one.p === "string" ? null : D.pods[one.p];
  const many = group.length > 1;
  const rest = [];
  const more = many && h("button", { class: "link others", type: "button", "aria-expanded": "false", onclick: (event) => {
    const open = event.target.getAttribute("aria-expanded") === "true";
    event.target.setAttribute("aria-expanded", String(!open));
    if (open) { rest.splice(0).forEach((row) => row.remove()); return; }
    for (const [at, other] of group.slice(1, 500)) {
      rest.push(h("tr", { class: "more" }, cell("Turn", { class: "num" }, turnText(other, at)), cell("Pod", { class: "name" }, toPod(other.p)),
        h("td", { colspan: 3 }, ""), cell("Node", { class: "name" }, toNode(other.n)), h("td", { colspan: 2 }, "")));
    }
    event.target.closest("tr").after(...rest);
  } }, `and ${group.length - 1} more`);
  const near = nearText(one.near);
  return h("tr", null, cell("Turn", { class: "num" }, turnText(one, place)), cell("Pod", { class: "name" }, toPod(one.p), more),
    cell("Workload", {}, pod ? jobText(pod[3]) : ""), cell("Asks for", {}, pod ? asked(pod[4]) : ""), cell("Outcome", {}, badge(one.o)),
    cell("Node", { class: "name" }, toNode(one.n)), cell("Why", { class: "why" }, text(one.w), near && h("div", { class: "dim" }, near)),
    cell("Starts", { class: "when" }, startText(one)));
}
function queueView(state) {
  const find = matcher(state.q);
  const all = D.queue.map((one, place) => [place, one]);
  const found = all.filter(([, one]) => !find || find(`${podText(one.p)} ${text(one.w)} ${nodeName(one.n ?? -1)}`.toLowerCase()));
  const kinds = [...new Set(D.queue.map((one) => one.o))];
  const picked = kinds.includes(state.outcome) ? state.outcome : "";
  const groups = grouped(found.filter(([, one]) => !picked || one.o === picked));
  const chip = (key, told, count) => h("button", { class: "chip", type: "button", "aria-pressed": String(picked === key), onclick: () => go({ outcome: key }) },
    told, h("small", null, count));
  const timed = D.queue.some((one) => one.s !== undefined);
  const heads = ["Turn", "Pod", "Workload", "Asks for", "Outcome", "Node", "Why", ...(timed ? ["Starts"] : [])];
  const body = h("tbody");
  let shown = 0;
  const next = h("button", { class: "next", type: "button", onclick: () => draw() });
  const draw = () => {
    const rows = groups.slice(shown, shown + 200).map(queueRow);
    if (!timed) rows.forEach((row) => row.lastChild.remove());
    body.append(...rows);
    shown += 200;
    next.hidden = shown >= groups.length;
    next.textContent = `${groups.length - shown} more rows`;
  };
  draw();
  if (!D.queue.length) return [h("p", null, "Nobody waits.")];
  return [h("div", { class: "row" }, chip("", "all", found.length), kinds.map((kind) => chip(kind, kind, found.filter(([, one]) => one.o === kind).length))),
    D.policy && h("p", { class: "dim" }, `in the order in which they were decided, by the policy ${D.policy}; equal pods of a workload share a row`
      + (timed ? "; who starts later has its turn whenever somebody leaves, and nobody is evicted for it" : "")),
    h("div", { class: "wide" }, h("table", { class: "stack" }, h("thead", null, h("tr", null, heads.map((name) => h("th", { class: name === "Turn" ? "num" : null }, name)))), body)), next,
    !groups.length && h("p", null, "Nobody in the queue is like that.")];
}

// --- gangs -----------------------------------------------------------------------------------------------

function certificateText(known) {
  if (!known) return "";
  const figures = [known.objective.length && `reached ${known.objective.join(", ")}`, known.bound.length && !known.proven && `bound ${known.bound.join(", ")}`];
  return h("span", { class: known.proven ? "good" : "warn", title: figures.filter(Boolean).join("; ") }, known.text);
}
function domainsText([layer, count, names]) {
  const kind = layer.replace(/Layer$/, "").replace(/Topology$/, "").toLowerCase() + (count === 1 ? "" : "s");
  return names.length && names.length <= 3 ? `${kind} ${names.join(" ")}` : `${count} ${kind}`;
}
function gangsView(state) {
  const find = matcher(state.q);
  const rows = D.gangs.rows.filter((one) => !find || find(`${one.job} ${one.why} ${one.outcome}`.toLowerCase()));
  if (!D.gangs.rows.length) return [h("p", null, "No gang was asked about.")];
  const heads = ["Gang", "Members", "At least", "Outcome", "Over", "Certificate", "Why not"];
  const row = (one) => h("tr", null,
    cell("Gang", { class: "name" }, h("button", { class: "link", type: "button", onclick: () => go({ view: "cluster", q: one.job.split(",")[0], show: "" }) }, one.job)),
    cell("Members", { class: "num" }, `${one.placed || one.held} of ${one.members}`), cell("At least", { class: "num" }, one.least),
    cell("Outcome", {}, h("span", { class: `badge ${{ placed: "good", "no place": "bad" }[one.outcome] || "warn"}` }, one.outcome)),
    cell("Over", {}, one.domains.map(domainsText).join(", ")), cell("Certificate", {}, certificateText(one.certificate)),
    cell("Why not", { class: "why" }, one.why, one.message && one.message !== one.why && h("div", { class: "dim" }, one.message)));
  return [D.gangs.network && h("p", { class: "dim" }, `network: ${D.gangs.network}`),
    h("div", { class: "wide" }, h("table", { class: "stack" }, h("thead", null, h("tr", null, heads.map((name) =>
      h("th", { class: name === "Members" || name === "At least" ? "num" : null }, name)))), h("tbody", null, rows.map(row)))),
    !rows.length && h("p", null, "No gang is like that."),
    (D.gangs.joint || []).map((one) => h("p", null, `Planned together: ${one.jobs.join(", ")}. ${one.started.length} start, one by one it would have been ${one.alone}. `,
      certificateText(one.certificate)))];
}

// --- quotas ----------------------------------------------------------------------------------------------

function pickedResource(tree_, wanted) {
  const resources = [...new Set(tree_.rows.map((row) => row.resource))];
  return resources.includes(wanted) ? wanted : resources.find((name) => name.includes("gpu")) || resources[0];
}
const percent = (part, whole) => Math.max(0, Math.min(100, (100 * part) / Math.max(1, whole)));
function quotaView(state) {
  if (!D.quotas.length) return [h("p", null, "There are no quotas.")];
  const find = matcher(state.q);
  return D.quotas.map((tree_) => {
    const resources = [...new Set(tree_.rows.map((row) => row.resource))];
    const picked = pickedResource(tree_, state.resource);
    const rows = tree_.rows.filter((row) => row.resource === picked && (!find || find(row.quota.toLowerCase())));
    const limited = (value) => (value > 1e15 ? 0 : value);
    const most = Math.max(1, ...rows.map((row) => Math.max(limited(row.max), row.used, row.runtime || 0, row.min || 0)));
    const line = (row) => h("tr", null,
      cell("Quota", { class: "name", style: find ? null : `padding-left:${0.7 + 1.2 * row.depth}rem` },
        h("button", { class: "link", type: "button", onclick: () => go({ quota: row.quota, resource: picked, node: "", pod: "" }) }, row.quota)),
      cell("", {}, h("div", { class: "gauge", title: "used; marks: min, runtime" },
        h("i", { style: `width:${percent(Math.min(row.used, row.min || 0), most)}%` }),
        row.used > (row.min || 0) && h("i", { class: "over", style: `left:${percent(row.min || 0, most)}%;width:${percent(row.used - (row.min || 0), most)}%` }),
        row.min !== null && h("u", { class: "min", style: `left:calc(${percent(row.min, most)}% - 1px)` }),
        row.runtime !== null && h("u", { style: `left:calc(${percent(row.runtime, most)}% - 1px)` }))),
      ...["min", "max", "request", "runtime", "used", "borrowed"].map((name) => cell(name, { class: "num" }, amount(picked, row[name]))),
      cell("borrows from", {}, row.lenders.join(", ")));
    return h("section", null, tree_.tree && h("h2", null, `tree ${tree_.tree}`),
      h("div", { class: "row" }, resources.map((name) => h("button", { class: "chip", type: "button", "aria-pressed": String(name === picked),
        onclick: () => go({ resource: name, quota: "" }) }, name))),
      h("p", { class: "dim" }, "Blue is used within the min, orange what is used beyond it; the green mark is the min, the other one the runtime. A quota's name tells how its runtime came about."),
      h("div", { class: "wide" }, h("table", { class: "stack" }, h("thead", null, h("tr", null, h("th", null, "Quota"), h("th", null, ""),
        ["Min", "Max", "Request", "Runtime", "Used", "Borrowed"].map((name) => h("th", { class: "num" }, name)), h("th", null, "Borrows from"))), h("tbody", null, rows.map(line)))),
      !rows.length && h("p", null, "No quota is like that."));
  });
}
function waterfall(state) {
  const tree_ = D.quotas.find((one) => one.rows.some((row) => row.quota === state.quota));
  const row = tree_ && tree_.rows.find((one) => one.quota === state.quota && one.resource === pickedResource(tree_, state.resource));
  if (!row) return [h("p", null, "No such quota.")];
  const told = (value) => amount(row.resource, value);
  if (!row.path) return [h("h2", null, row.quota), h("p", null, `It has no runtime in ${row.resource}.`)];
  const chain = row.path.map((place) => tree_.families[place]);
  const names = chain.slice(1).map((family) => family.parent).concat(row.quota);
  return [h("h2", null, `${row.quota}, ${row.resource}`),
    h("p", null, `runtime ${told(row.runtime)}, used ${told(row.used)}, max ${told(row.max)}`),
    chain.map((family, level) => {
      const most = Math.max(1, ...family.members.map((one) => Math.max(one.runtime, one.asks > 1e15 ? 0 : one.asks)));
      return [h("h3", null, `${family.parent} shares ${told(family.available)}`), h("p", { class: "dim" }, `the mins add up to ${told(family.promised)}`),
        h("ul", { class: "fall" }, family.members.map((one) => h("li", { class: one.quota === names[level] ? "self" : null }, h("b", null, one.quota),
          ` gets ${told(one.runtime)}`, h("div", { class: "gauge" }, h("i", { style: `width:${percent(Math.min(one.runtime, one.floor), most)}%` }),
            one.borrowed > 0 && h("i", { class: "over", style: `left:${percent(one.floor, most)}%;width:${percent(one.borrowed, most)}%` })),
          h("div", { class: "dim" }, [`min ${told(one.min)}`, one.floor !== one.min && `floor ${told(one.floor)}`, `asks for ${told(one.asks)}`,
            one.need !== one.asks && `at most ${told(one.need)}`, one.borrowed > 0 && `${told(one.borrowed)} borrowed`, one.lent > 0 && `lends ${told(one.lent)}`,
            one.lacking > 0 && `lacks ${told(one.lacking)}`, !one.lends && "does not lend"].filter(Boolean).join(", "))))),
        family.rounds.map((one, number) => h("p", { class: "dim" }, `round ${number + 1} deals ${told(one.left)} by weight: `,
          one.granted.map(([name, value]) => `${name} ${told(value)}`).join(", "))),
        family.undealt > 0 && h("p", { class: "dim" }, `nobody can take ${told(family.undealt)}`)];
    }),
    h("p", null, h("b", null, "What binds: "), row.binds, row.at !== row.quota && ` (of ${row.at})`),
    row.holders.length > 0 && h("p", null, h("b", null, "Who has it: "), row.holders.map(([name, value]) => `${name} ${told(value)}`).join(", "))];
}

// --- plans -----------------------------------------------------------------------------------------------

const MANY = 3;
function planView(plan, number, state) {
  if (D.plans.length > MANY && state.plan !== String(number)) {
    return h("section", { class: "plan short" }, h("button", { class: "link", type: "button", onclick: () => go({ plan: String(number), step: "0" }) }, plan.title),
      h("span", { class: "dim" }, plan.facts.slice(0, 1).map(([name, told]) => ` · ${name}: ${told}`), ` · ${plan.certificate.text}`));
  }
  const chosen = state.plan === String(number) ? Number(state.step) || 0 : 0;
  const last = plan.steps.length - 1;
  const at = Math.max(0, Math.min(last, chosen));
  const step = plan.steps[at];
  const before = new Map(plan.steps[Math.max(0, at - 1)].cards.map(([row, cards]) => [row, JSON.stringify(cards)]));
  const loads = new Map(step.loads);
  const touched = new Set(step.changes.flatMap(([, from, to]) => [from, to]).filter((row) => row !== -1));
  const tiles = step.cards.map(([row, cards]) => {
    const tile = nodeTile(row, { cards, loads: loads.get(row) });
    if (at > 0 && (touched.has(row) || before.get(row) !== JSON.stringify(cards))) tile.style.borderColor = "var(--accent)";
    return tile;
  });
  const way = ([pod, from, to, what]) => h("li", null, toPod(pod), ` ${what}`, from !== -1 && [" from ", toNode(from)], to !== -1 && [what === "moves" ? " to " : " on ", toNode(to)]);
  const button = (place, told, pressed) => h("button", { class: "chip", type: "button", "aria-pressed": pressed, disabled: place < 0 || place > last,
    onclick: () => go({ plan: String(number), step: String(place) }) }, told);
  return h("section", { class: "plan" }, h("h2", null, plan.title),
    h("dl", { class: "facts" }, h("dt", null, "certificate"), h("dd", null, certificateText(plan.certificate)),
      plan.facts.flatMap(([name, told]) => [h("dt", null, name), h("dd", null, told)])),
    last > 0 && h("div", { class: "steps" }, button(at - 1, "‹", "false"), plan.steps.map((one, place) => button(place, one.label, String(place === at))), button(at + 1, "›", "false")),
    h("ul", { class: "changes" }, step.changes.slice(0, 200).map(way), step.changes.length > 200 && h("li", null, `and ${step.changes.length - 200} more`)),
    h("div", { class: "grid" }, tiles.slice(0, 600)));
}
function plansFound(state) {
  const find = matcher(state.q);
  const about = (plan) => [plan.title, ...plan.facts.flat(), ...plan.steps.flatMap((step) => step.changes.flatMap(([pod, from, to]) => [podText(pod), nodeName(from), nodeName(to)]))];
  const found = D.plans.map((plan, number) => [plan, number]).filter(([plan]) => !find || find(about(plan).join(" ").toLowerCase()));
  return found.length ? found.map(([plan, number]) => planView(plan, number, state)) : [h("p", null, "No plan is about that.")];
}
const plansView = (state) => (D.plans.length ? plansFound(state)
  : [h("p", null, "No plan was asked for. "), h("p", { class: "dim" }, h("code", null, "koordcore report --preempt"), ", ", h("code", null, "--rebalance"), ", ", h("code", null, "--want"), " and ", h("code", null, "--fragments"), " add some.")]);
