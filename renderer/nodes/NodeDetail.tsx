import { Button, Drawer } from "@mantine/core";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import IconServer2 from "@tabler/icons-react/icons/IconServer2";
import type { NodeView } from "../../electron/contract/index.js";
import { go } from "../app/router.js";
import { useUi } from "../app/ui.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { bytes } from "../shared/format.js";
import { oneLine } from "../shared/printable.js";
import { Age, EmptyState } from "../shared/small.js";
import { useAction } from "../shared/use-action.js";
import { useConsole, useItem } from "../store/console-hooks.js";
import { BreakLock } from "./BreakLock.js";
import { ChangeAuth } from "./ChangeAuth.js";
import { useLastSeen } from "./node-columns.js";
import { NodeFactsView } from "./NodeFactsView.js";
import { HostKeyState, PhaseState } from "./phase.js";
import { RemoveNodes } from "./RemoveNodes.js";
import { useBringUp } from "./use-operations.js";
import css from "./nodes.module.css";

/** Everything known of one node, with what can be done to it. */
export function NodeDetail() {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const id = useUi((s) => s.nodeDetail);
  const set = useUi((s) => s.set);
  const node = useItem(nodes, id);
  return (
    <Drawer
      opened={id !== null} onClose={() => set({ nodeDetail: null })} size={700} closeButtonProps={{ "aria-label": t("common.close") }} data-testid="node-detail"
      title={node ? <strong>{oneLine(node.name, 60)}</strong> : t("detail.gone")}
    >
      {node && <Body key={node.id} node={node} />}
    </Drawer>
  );
}

function Body({ node }: { node: NodeView }) {
  const { t } = useTranslation();
  const { client, nodes, telemetry } = useConsole();
  const set = useUi((s) => s.set);
  const lastSeen = useLastSeen(node);
  const [removing, setRemoving] = useState<"takeDown" | "forget" | null>(null);
  const bringUp = useBringUp();
  const connect = useAction(async (signal) => nodes.upsert(await client.request("nodes.connect", { nodeId: node.id }, { signal })));
  const trusted = node.hostKey.status === "trusted";
  const sample = telemetry.nodes.get(node.id);
  const rss = sample?.daemonRssKib ?? node.agent.rssKib;
  return (
    <div className={css.stack}>
      <div className="toolbar">
        {!trusted && <Button onClick={() => set({ hostKeys: [node.id], afterKeys: null })}>{t("nodes.confirmKeys")}</Button>}
        {trusted && <Button disabled={node.phase === "bringing_up"} loading={bringUp.busy} onClick={() => void bringUp.run([node.id])}>{t("nodes.bringUp")}</Button>}
        {connect.busy ? (
          <Button variant="default" onClick={connect.cancel}>{t("detail.cancelConnect")}</Button>
        ) : (
          <Button variant="default" disabled={!trusted} onClick={() => void connect.run()}>{t("detail.connect")}</Button>
        )}
        <Button variant="default" onClick={() => { set({ nodeDetail: null }); go("diagnose", { nodes: node.id }); }}>{t("nodes.diagnose")}</Button>
        <span className="spacer" />
        <Button variant="default" onClick={() => setRemoving("takeDown")}>{t("nodes.takeDown")}</Button>
        <Button variant="default" c="var(--c-bad)" onClick={() => setRemoving("forget")}>{t("nodes.forget")}</Button>
      </div>
      {connect.error && <ErrorNote error={connect.error} onClose={connect.clear} />}
      {node.error && <ErrorNote error={node.error} />}
      {node.error?.code === "H314" && <BreakLock node={node} />}
      <dl className="kv">
        <dt>{t("nodes.columns.phase")}</dt><dd><PhaseState phase={node.phase} /></dd>
        <dt>{t("nodes.columns.address")}</dt><dd className="mono">{oneLine(`${node.user}@${node.host}:${node.port}`)}</dd>
        {node.jump.length > 0 && <><dt>{t("add.jump")}</dt><dd className="mono">{oneLine(node.jump.join(" → "))}</dd></>}
        <dt>{t("detail.dataAddress")}</dt><dd className="mono">{oneLine(node.dataAddress ?? "–")}</dd>
        <dt>{t("add.auth")}</dt><dd>{t(`authKinds.${node.authKind}`)}{node.keyPath !== null && <span className="mono dim"> {oneLine(node.keyPath)}</span>} <ChangeAuth node={node} /></dd>
        <dt>{t("nodes.columns.hostKey")}</dt>
        <dd><HostKeyState status={node.hostKey.status} /> <span className="mono dim">{oneLine(node.hostKey.trusted ?? node.hostKey.offered ?? "")}</span></dd>
        <dt>{t("detail.connection")}</dt><dd>{t(`connectionStates.${node.connection.state}`)}</dd>
        <dt>{t("nodes.columns.daemon")}</dt>
        <dd>{t(`agentStates.${node.agent.state}`)}{node.agent.version !== null && ` ${oneLine(node.agent.version)}`}{rss !== null && <span className="dim"> · {bytes(rss * 1024)}</span>}</dd>
        <dt>{t("detail.member")}</dt><dd>{node.member ?? "–"}</dd>
        <dt>{t("nodes.columns.lastSeen")}</dt><dd><Age atMs={lastSeen} always /></dd>
      </dl>
      {node.facts ? <NodeFactsView facts={node.facts} sample={sample} /> : <EmptyState icon={IconServer2} title={t("detail.noFacts.title")}>{t("detail.noFacts.text")}</EmptyState>}
      <RemoveNodes kind={removing} ids={[node.id]} onClose={() => setRemoving(null)} />
    </div>
  );
}
