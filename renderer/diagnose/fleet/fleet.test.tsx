import { act, fireEvent, screen, waitFor, within } from "@testing-library/react";
import { beforeEach, describe, expect, it } from "vitest";
import type { DiagnosisView, FindingView, MendRunView } from "../../../electron/contract/index.js";
import { renderOver } from "../../dev/render.js";
import { DiagnosePage } from "../DiagnosePage.js";
import { faultGroups, inShownOrder, type Member } from "./groups.js";
import { choicesOf, FRESH_MS, planOf } from "./plan.js";

const words = (en: string) => ({ en, zh: en });
const mend = (id: string | null, command: string, risk: FindingView["mend"][number]["risk"] = "none") => ({ id, command, explanation: words(""), risk });
const finding = (id: string, change: Partial<FindingView> = {}): FindingView => ({ id, class: id.split("/")[0]!, severity: "high", consequenceOf: null, mend: [], retest: [], ...change }) as FindingView;
const diagnosis = (nodeId: string, findings: FindingView[], change: Partial<DiagnosisView> = {}): DiagnosisView => ({ nodeId, state: "done", startedAtMs: 0, endedAtMs: 1000, findings, ...change }) as DiagnosisView;

describe("groups", () => {
  it("hold one entry for each class and severity, the worst first, then the most widespread, with each node once", () => {
    const groups = faultGroups([
      diagnosis("a", [finding("x.one"), finding("y.two/eth0", { severity: "low" }), finding("y.two/eth1", { severity: "low" })]),
      diagnosis("b", [finding("x.one"), finding("z.three"), finding("n.note", { severity: "info" }), finding("q.after", { consequenceOf: "x.one" })]),
      diagnosis("c", [finding("x.one", { severity: "critical" })]),
    ]);
    expect(groups.map((group) => [group.key, group.nodeIds, group.members.length])).toEqual([["x.one critical", ["c"], 1], ["x.one high", ["a", "b"], 2], ["z.three high", ["b"], 1], ["y.two low", ["a"], 2]]);
  });
  it("keep the order that is on screen, new ones below, until they are sorted", () => {
    const groups = faultGroups([diagnosis("a", [finding("x.one"), finding("y.two", { severity: "low" }), finding("z.three", { severity: "critical" })])]);
    expect(inShownOrder(groups, ["y.two low", "x.one high"]).map((group) => group.finding.class)).toEqual(["y.two", "x.one", "z.three"]);
  });
});

describe("a plan", () => {
  const member = (nodeId: string, ...mends: FindingView["mend"]): Member => ({ nodeId, finding: finding("x.one", { mend: mends, retest: ["lsmod"] }) });
  const facts = (views: DiagnosisView[] = [], mends: MendRunView[] = []) => ({ nowMs: 2000, diagnosis: (id: string) => views.find((view) => view.nodeId === id) ?? diagnosis(id, []), mends });
  it("says which commands run on which nodes, word for word, and how bad the worst of them is", () => {
    const members = [member("a", mend("load", "modprobe x"), mend("kill", "kill 7", "interrupts_jobs")), member("b", mend("load", "modprobe x"), mend("kill", "kill 8", "interrupts_jobs")), member("c", mend("load", "modprobe x"), mend(null, "ls"))];
    expect(choicesOf(members).map((choice) => [choice.id, choice.members, choice.commands, choice.risk])).toEqual([["load", 3, 1, "none"], ["kill", 2, 2, "interrupts_jobs"]]);
    const one = planOf(members, new Set(["load"]), facts());
    expect(one.variants.map((variant) => [variant.commands.map((each) => each.command), variant.members.length])).toEqual([[["modprobe x"], 3]]);
    expect([one.risk, one.retest]).toEqual(["none", ["lsmod"]]);
    const both = planOf(members, new Set(["load", "kill"]), facts());
    expect(both.variants.map((variant) => variant.commands.map((each) => each.command))).toEqual([["modprobe x", "kill 7"], ["modprobe x", "kill 8"], ["modprobe x"]]);
    expect(both.risk).toBe("interrupts_jobs");
  });
  it("leaves out, and says why, where it would not be carried out", () => {
    const members = ["none", "old", "checking", "mending", "well"].map((id) => member(id, ...(id === "none" ? [] : [mend("load", "modprobe x")])));
    const views = [diagnosis("old", [], { endedAtMs: 2000 - FRESH_MS - 1 }), diagnosis("checking", [], { state: "running" })];
    const plan = planOf(members, new Set(["load"]), facts(views, [{ nodeId: "mending", endedAtMs: null } as MendRunView, { nodeId: "well", endedAtMs: 5 } as MendRunView]));
    expect([...plan.leftOut].map(([why, left]) => [why, left.map((each) => each.nodeId)])).toEqual([["nothing", ["none"]], ["old", ["old"]], ["checking", ["checking"]], ["mending", ["mending"]]]);
    expect(plan.variants.flatMap((variant) => variant.members.map((each) => each.nodeId))).toEqual(["well"]);
  });
});

const sent = (host: { received: unknown[] }, method: string) => host.received.filter((message) => (message as { method?: string }).method === method) as Array<{ params: Record<string, unknown> }>;
const groupOf = (name: string) => document.querySelector<HTMLElement>(`[data-testid="fault-group"][data-class="${name}"]`)!;
async function openGroup(name: string, fleet = 30, stepMs = 20) {
  window.location.hash = "#/diagnose";
  const rendered = renderOver(<DiagnosePage />, { fleet, stepMs });
  await waitFor(() => expect(groupOf(name)).toBeTruthy());
  fireEvent.click(within(groupOf(name)).getByRole("button", { expanded: false }));
  return rendered;
}
async function consent(name: string, command: RegExp, oneFirst = false) {
  const row = within(groupOf(name)).getByText(command).closest<HTMLElement>("[data-risk]")!;
  fireEvent.click(within(row).getByRole("button", { name: /^Apply on/ }));
  const dialog = await screen.findByRole("dialog");
  if (!oneFirst) fireEvent.click(within(dialog).getByRole("checkbox", { name: /Begin with one node/ }));
  return dialog;
}

describe("the fleet", () => {
  beforeEach(() => { window.location.hash = "#/diagnose"; });

  it("shows a fault of many nodes once, with their number and, opened, their list", async () => {
    await openGroup("perm.dma_device_node");
    const group = groupOf("perm.dma_device_node");
    // Of 30 nodes n1 and n3 are clean, and every fifth from n12 on.
    expect(group.dataset.count).toBe("24");
    expect(within(group).getByText(/keep the user out/)).toBeTruthy();
    expect(within(group).getByTestId("group-nodes").querySelectorAll("[data-row-id]")).toHaveLength(24);
    fireEvent.doubleClick(within(group).getByTestId("group-nodes").querySelector("[data-row-id]")!);
    expect((await screen.findByTestId("node-report")).dataset.node).toBe("n2");
  });

  it("is mended on those that are chosen by one consent, with a result for each", async () => {
    const { host } = await openGroup("perm.dma_device_node", 12);
    const rows = [...within(groupOf("perm.dma_device_node")).getByTestId("group-nodes").querySelectorAll("[data-row-id]")];
    fireEvent.click(rows[0]!);
    fireEvent.click(rows[2]!, { shiftKey: true });
    const dialog = await consent("perm.dma_device_node", /udevadm/);
    expect(document.activeElement).toBe(within(dialog).getByRole("button", { name: "Cancel" }));
    expect(within(dialog).getByText("rack01-gpu02, rack01-gpu04, rack01-gpu05")).toBeTruthy();
    expect(sent(host, "mends.offer")).toEqual([]);
    fireEvent.click(within(dialog).getByTestId("apply-group-run"));
    await waitFor(() => expect(screen.getByTestId("group-run").dataset.state).toBe("done"), { timeout: 30_000 });
    expect(within(screen.getByTestId("group-run")).getByText("3 mended")).toBeTruthy();
    expect(groupOf("perm.dma_device_node").dataset.count).toBe("7");
  });

  it("begins with one node, and leaves the others alone when that one is not mended", async () => {
    const { host } = await openGroup("link.mtu_mismatch", 21);
    const dialog = await consent("link.mtu_mismatch", /ip link set/, true);
    // Each node's own command is there to read before it is agreed to.
    expect(within(dialog).getAllByText(/ip link set/).map((code) => code.textContent)).toEqual(expect.arrayContaining(["ip link set eth1 mtu 9000", "ip link set eth2 mtu 9000"]));
    expect(within(dialog).getByText(/Jobs that run on these \d+ nodes are interrupted/)).toBeTruthy();
    fireEvent.click(within(dialog).getByTestId("apply-group-run"));
    await waitFor(() => expect(screen.getByTestId("group-run").dataset.state).toBe("done"));
    expect(sent(host, "mends.apply")).toHaveLength(1);
    expect(screen.getByText(/The first node was not mended/)).toBeTruthy();
  });

  it("wants a second consent for what destroys: the number of nodes, typed", async () => {
    const { host } = await openGroup("perm.dma_device_node", 15);
    const dialog = await consent("perm.dma_device_node", /rm -rf/);
    const run = within(dialog).getByTestId("apply-group-run");
    expect(run.hasAttribute("disabled")).toBe(true);
    fireEvent.change(within(dialog).getByTestId("second-consent"), { target: { value: "13" } });
    expect(run.hasAttribute("disabled")).toBe(true);
    fireEvent.change(within(dialog).getByTestId("second-consent"), { target: { value: "12" } });
    expect(run.hasAttribute("disabled")).toBe(false);
    expect(sent(host, "mends.offer")).toEqual([]);
  });

  it("keeps what is on screen in its place while nodes are checked again", async () => {
    const { host } = await openGroup("link.mtu_mismatch", 30, 400);
    const order = () => screen.getAllByTestId("fault-group").map((each) => each.dataset.class);
    const before = order();
    act(() => fireEvent.click(screen.getByTestId("run-checks")));
    await screen.findByText(/nodes are being checked/);
    expect(order()).toEqual(before);
    expect(groupOf("perm.dma_device_node").dataset.count).toBe("24");
    expect(within(groupOf("link.mtu_mismatch")).getByTestId("group-nodes")).toBeTruthy();
    await waitFor(() => expect([...host.diagnoses.values()].every((each) => each.state === "done")).toBe(true));
    await waitFor(() => expect(screen.queryByText(/nodes are being checked/)).toBeNull());
    expect(order()).toEqual(before);
  });
});
