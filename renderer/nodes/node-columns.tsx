import { Checkbox } from "@mantine/core";
import type { TFunction } from "i18next";
import { useTranslation } from "react-i18next";
import type { NodeView } from "../../electron/contract/index.js";
import { useUi } from "../app/ui.js";
import type { Column } from "../shared/DataGrid.js";
import { useErrorText } from "../shared/ErrorNote.js";
import { bytes } from "../shared/format.js";
import { oneLine, printable } from "../shared/printable.js";
import { Age, NodeText, useStale } from "../shared/small.js";
import { useConsole, useItem, useNow } from "../store/console-hooks.js";
import { rdmaPorts } from "./filter.js";
import { HostKeyState, PhaseState } from "./phase.js";

/** When the node last gave a sign of life: an answer, or a sample of its daemon, whichever is later. */
export function useLastSeen(node: NodeView): number | null {
  const { telemetry } = useConsole();
  useNow();
  const sampled = telemetry.nodes.get(node.id)?.sampledAtMs ?? null;
  return sampled === null ? node.lastSeenMs : Math.max(sampled, node.lastSeenMs ?? 0);
}

function Stale({ node, children }: { node: NodeView; children: React.ReactNode }) {
  const stale = useStale(useLastSeen(node));
  return <span className={stale ? "stale ellipsis" : "ellipsis"} data-stale={stale || undefined}>{children}</span>;
}

const cell = (Render: (props: { node: NodeView }) => React.ReactNode) =>
  function NodeCell({ id }: { id: string }) {
    const { nodes } = useConsole();
    const node = useItem(nodes, id);
    return node ? <Render node={node} /> : null;
  };

const Select = cell(({ node }) => {
  const { t } = useTranslation();
  const selection = useUi((s) => s.selection);
  const set = useUi((s) => s.set);
  return (
    <Checkbox
      tabIndex={-1} checked={selection.has(node.id)} aria-label={t("nodes.selectNode", { name: oneLine(node.name) })}
      onClick={(event) => event.stopPropagation()}
      onChange={() => {
        const next = new Set(selection);
        if (!next.delete(node.id)) next.add(node.id);
        set({ selection: next });
      }}
    />
  );
});

function Code({ error }: { error: NonNullable<NodeView["error"]> }) {
  const { message, next } = useErrorText(error);
  return <span className="mono" title={`${message} ${next}`} style={{ marginLeft: 6, color: "var(--c-bad)" }}>{error.code}</span>;
}

const Name = cell(({ node }) => <strong className="ellipsis" title={printable(node.name)}>{oneLine(node.name)}</strong>);
const Address = cell(({ node }) => <NodeText text={`${node.user}@${node.host}:${node.port}`} mono />);
const Phase = cell(({ node }) => {
  // An old "up" must not look like a fresh one; a failure stays loud however old it is.
  const state = node.phase === "up" ? <Stale node={node}><PhaseState phase={node.phase} /></Stale> : <PhaseState phase={node.phase} />;
  return <>{state}{node.error && <Code error={node.error} />}</>;
});
const HostKey = cell(({ node }) => <HostKeyState status={node.hostKey.status} />);
const Kernel = cell(({ node }) => <Stale node={node}>{node.facts?.kernel == null ? "–" : <NodeText text={node.facts.kernel} mono />}</Stale>);
const Driver = cell(({ node }) => {
  const { t } = useTranslation();
  const driver = node.facts?.driver;
  return <Stale node={node}>{!driver ? "–" : driver.present ? oneLine(driver.version ?? t("nodes.loaded")) : t("nodes.absent")}</Stale>;
});
const Daemon = cell(({ node }) => {
  const { t } = useTranslation();
  const { telemetry } = useConsole();
  const rss = telemetry.nodes.get(node.id)?.daemonRssKib ?? node.agent.rssKib;
  if (node.agent.state !== "running") return <span className="dim">{t(`agentStates.${node.agent.state}`)}</span>;
  return <Stale node={node}>{oneLine(node.agent.version ?? "")}{rss !== null && <span className="dim"> · {bytes(rss * 1024)}</span>}</Stale>;
});
const Rdma = cell(({ node }) => {
  const { t } = useTranslation();
  const ports = rdmaPorts(node);
  if (!ports) return <>–</>;
  if (ports.total === 0) return <span className="dim">{t("nodes.none")}</span>;
  return <Stale node={node}><span style={ports.active < ports.total ? { color: "var(--c-warn)" } : undefined}>{t("nodes.portsActive", { active: ports.active, total: ports.total })}</span></Stale>;
});
const Gpus = cell(({ node }) => {
  const { t } = useTranslation();
  const gpus = node.facts?.gpus;
  if (!gpus) return <>–</>;
  if (gpus.length === 0) return <span className="dim">{t("nodes.none")}</span>;
  return <Stale node={node}><NodeText text={`${gpus.length} × ${gpus[0]!.name.replace(/^NVIDIA /, "")}`} /></Stale>;
});
const LastSeen = cell(({ node }) => <Age atMs={useLastSeen(node)} always />);

export const nodeColumns = (t: TFunction): Column[] => [
  { key: "select", header: <span className="sr-only">{t("nodes.columns.select")}</span>, width: "34px", cell: (id) => <Select id={id} /> },
  { key: "name", header: t("nodes.columns.name"), width: "minmax(110px, 1.2fr)", sortable: true, cell: (id) => <Name id={id} /> },
  { key: "phase", header: t("nodes.columns.phase"), width: "minmax(168px, 1fr)", sortable: true, cell: (id) => <Phase id={id} /> },
  { key: "address", header: t("nodes.columns.address"), width: "minmax(150px, 1.2fr)", sortable: true, cell: (id) => <Address id={id} /> },
  { key: "hostKey", header: t("nodes.columns.hostKey"), width: "minmax(120px, 0.6fr)", sortable: true, cell: (id) => <HostKey id={id} /> },
  { key: "kernel", header: t("nodes.columns.kernel"), width: "minmax(124px, 0.9fr)", wide: true, sortable: true, cell: (id) => <Kernel id={id} /> },
  { key: "driver", header: t("nodes.columns.driver"), width: "90px", wide: true, sortable: true, cell: (id) => <Driver id={id} /> },
  { key: "daemon", header: t("nodes.columns.daemon"), width: "128px", sortable: true, cell: (id) => <Daemon id={id} /> },
  { key: "rdma", header: t("nodes.columns.rdma"), width: "102px", sortable: true, cell: (id) => <Rdma id={id} /> },
  { key: "gpus", header: t("nodes.columns.gpus"), width: "92px", sortable: true, cell: (id) => <Gpus id={id} /> },
  { key: "lastSeen", header: t("nodes.columns.lastSeen"), width: "88px", sortable: true, align: "end", cell: (id) => <LastSeen id={id} /> },
];
