import { Button, Checkbox, Loader, Modal } from "@mantine/core";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { useUi } from "../app/ui.js";
import { toShownError } from "../client/page-error.js";
import { CopyButton } from "../shared/CopyButton.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { oneLine } from "../shared/printable.js";
import { useConsole, useItem } from "../store/console-hooks.js";
import { HostKeyState } from "./phase.js";
import { checkHostKeys, hostKeyFile, sharedFingerprints, type KeyCheck } from "./host-key-check.js";
import { useBringUp } from "./use-operations.js";
import css from "./nodes.module.css";

/** The dialog in which a person vouches for host keys: each node with its own full fingerprint, Cancel first. */
export function HostKeys() {
  const { t } = useTranslation();
  const ids = useUi((s) => s.hostKeys);
  const set = useUi((s) => s.set);
  const close = useCallback(() => set({ hostKeys: null, afterKeys: null }), [set]);
  return (
    <Modal opened={ids !== null} onClose={close} title={ids && t("keys.title", { count: ids.length })} size={740} closeButtonProps={{ "aria-label": t("common.close") }} data-testid="host-keys">
      {ids && <Body key={ids.join()} ids={ids} onClose={close} />}
    </Modal>
  );
}

function Body({ ids, onClose }: { ids: readonly string[]; onClose(): void }) {
  const { t } = useTranslation();
  const { client, nodes } = useConsole();
  const after = useUi((s) => s.afterKeys);
  const bringUp = useBringUp();
  const [checks, setChecks] = useState<ReadonlyMap<string, KeyCheck>>(() => new Map(ids.map((id) => [id, { state: "checking" }])));
  const [trusting, setTrusting] = useState<ReadonlySet<string>>(new Set());
  const abort = useRef(new AbortController());
  const put = useCallback((id: string, check: KeyCheck) => setChecks((before) => new Map(before).set(id, check)), []);
  const check = useCallback((which: readonly string[]) => checkHostKeys(client, which, put, abort.current.signal), [client, put]);

  useEffect(() => {
    const controller = new AbortController();
    abort.current = controller;
    void check(ids);
    return () => controller.abort();
  }, [ids, check]);

  const trust = async (id: string) => {
    const known = checks.get(id);
    if (known?.state !== "done" || known.key.offered === null) return;
    setTrusting((before) => new Set(before).add(id));
    try {
      const node = await client.request("nodes.trustHostKey", { nodeId: id, fingerprint: known.key.offered });
      nodes.upsert(node);
      put(id, { state: "done", key: node.hostKey });
      // What the node is can now be asked; how that goes is the node's own state.
      client.request("nodes.connect", { nodeId: id }).then(nodes.upsert, () => undefined);
    } catch (thrown) {
      put(id, { state: "failed", error: toShownError(thrown) });
    } finally {
      setTrusting((before) => {
        const next = new Set(before);
        next.delete(id);
        return next;
      });
    }
  };

  const shared = useMemo(() => sharedFingerprints(checks), [checks]);
  const open = ids.filter((id) => {
    const known = checks.get(id);
    return known?.state === "done" && known.key.offered !== null && (known.key.status === "unconfirmed" || known.key.status === "unknown");
  });
  const settled = ids.every((id) => {
    const known = checks.get(id);
    return known?.state === "done" && known.key.status === "trusted";
  });
  return (
    <div className={css.stack}>
      <p className={css.plain}>{t("keys.intro")}</p>
      <div className={css.keyList}>
        {ids.map((id) => (
          <KeyCard
            key={id} id={id} check={checks.get(id) ?? { state: "checking" }} sharedBy={shared.get(id) ?? 0} busy={trusting.has(id)} single={ids.length === 1}
            onTrust={() => void trust(id)} onRetry={() => { put(id, { state: "checking" }); void check([id]); }}
          />
        ))}
      </div>
      <div className={css.footer}>
        <Button variant="default" data-autofocus onClick={onClose}>{settled ? t("common.close") : t("common.cancel")}</Button>
        {open.length > 1 && <Button variant="default" onClick={() => void Promise.all(open.map(trust))}>{t("keys.trustAll", { count: open.length })}</Button>}
        {settled && after !== null && (
          <Button onClick={() => { void bringUp.run(after); onClose(); }}>{t("nodes.bringUpCount", { count: after.length })}</Button>
        )}
      </div>
    </div>
  );
}

interface CardProps {
  id: string;
  check: KeyCheck;
  sharedBy: number;
  busy: boolean;
  single: boolean;
  onTrust(): void;
  onRetry(): void;
}

function KeyCard({ id, check, sharedBy, busy, single, onTrust, onRetry }: CardProps) {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const node = useItem(nodes, id);
  const [compared, setCompared] = useState(false);
  const name = oneLine(node?.name ?? id, 60);
  const key = check.state === "done" ? check.key : null;
  const changed = key?.status === "changed";
  const canTrust = key !== null && key.offered !== null && (key.status === "unconfirmed" || key.status === "unknown" || changed);
  const command = key ? `ssh-keygen -lf /etc/ssh/ssh_host_${hostKeyFile(key.algorithm)}_key.pub` : "";
  return (
    <section className={css.key} data-status={key?.status} aria-label={name} data-testid={`host-key-${id}`}>
      <div className={css.keyHead}>
        <strong className="ellipsis">{name}</strong>
        {node && <span className="mono dim ellipsis">{oneLine(`${node.host}:${node.port}`)}</span>}
        {key && <HostKeyState status={key.status} />}
        <span className="spacer" />
        {canTrust && (
          <Button size="compact-xs" variant={changed ? "default" : "light"} color={changed ? "red" : undefined} disabled={changed && !compared} loading={busy} onClick={onTrust}>
            {changed ? t("keys.trustNew") : t("keys.trust")}
          </Button>
        )}
      </div>
      {check.state === "checking" && <span className="dim"><Loader size={12} /> {t("keys.asking")}</span>}
      {check.state === "failed" && (
        <>
          <ErrorNote error={check.error} />
          <div><Button size="compact-xs" variant="default" onClick={onRetry}>{t("common.retry")}</Button></div>
        </>
      )}
      {key && (
        <dl className="kv">
          {changed && key.trusted !== null && <><dt>{t("keys.expected")}</dt><dd className={css.fingerprint}><span>{oneLine(key.trusted)}</span></dd></>}
          <dt>{changed ? t("keys.offeredNow") : t("keys.fingerprint")}</dt>
          <dd className={css.fingerprint}><span data-testid="fingerprint">{key.offered === null ? "–" : oneLine(key.offered)}</span>{key.offered !== null && <CopyButton text={key.offered} label={t("keys.copy")} />}</dd>
          <dt>{t("keys.algorithm")}</dt><dd className="mono">{oneLine(key.algorithm ?? "–")}</dd>
          {key.source !== null && <><dt>{t("keys.source")}</dt><dd>{oneLine(key.source)}</dd></>}
          {canTrust && (single || changed) && <><dt>{t("keys.compare")}</dt><dd><code className="mono">{command}</code> <CopyButton text={command} /></dd></>}
          {sharedBy > 1 && <><dt>{t("keys.evidence")}</dt><dd style={{ color: "var(--c-warn)" }}>{t("keys.shared", { count: sharedBy })}</dd></>}
        </dl>
      )}
      {changed && <Checkbox label={t("keys.compared")} checked={compared} onChange={() => setCompared(!compared)} />}
      {key?.status === "revoked" && <span style={{ color: "var(--c-bad)" }}>{t("keys.revoked")}</span>}
    </section>
  );
}
