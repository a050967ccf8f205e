import { Button, Modal } from "@mantine/core";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import type { LockHolder, NodeView } from "../../electron/contract/index.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { duration, timeOfDay } from "../shared/format.js";
import { oneLine } from "../shared/printable.js";
import { useAction } from "../shared/use-action.js";
import { useConsole, useNow } from "../store/console-hooks.js";
import css from "./nodes.module.css";

/** The way out of "held by another console": shows who holds the node now, and breaks exactly that hold when told to. */
export function BreakLock({ node }: { node: NodeView }) {
  const { t } = useTranslation();
  const { client } = useConsole();
  const now = useNow();
  const [holder, setHolder] = useState<LockHolder | "nobody" | null>(null);
  const look = useAction(async (signal) => setHolder((await client.request("nodes.lockHolder", { nodeId: node.id }, { signal })) ?? "nobody"));
  const act = useAction(async (signal, token: string) => {
    const { broken } = await client.request("nodes.breakLock", { nodeId: node.id, token }, { signal });
    // Another one came in between: show that one instead.
    if (broken) setHolder(null);
    else await look.run();
  });
  const close = () => {
    act.cancel();
    act.clear();
    setHolder(null);
  };
  return (
    <>
      <div className="toolbar"><Button variant="default" loading={look.busy} onClick={() => void look.run()}>{t("lock.look")}</Button></div>
      {look.error && <ErrorNote error={look.error} onClose={look.clear} />}
      <Modal opened={holder !== null} onClose={close} title={t("lock.title", { name: oneLine(node.name, 60) })} closeButtonProps={{ "aria-label": t("common.close") }} data-testid="break-lock">
        <div className={css.stack}>
          {holder === "nobody" && <p className={css.plain}>{t("lock.nobody")}</p>}
          {holder !== null && holder !== "nobody" && (
            <>
              <dl className="kv">
                <dt>{t("lock.owner")}</dt><dd>{oneLine(holder.owner, 120)}</dd>
                <dt>{t("lock.since")}</dt><dd>{holder.sinceMs === null ? t("facts.unknown") : timeOfDay(holder.sinceMs, now)}</dd>
                <dt>{t("lock.heartbeat")}</dt><dd>{holder.heartbeatAgeSeconds === null ? t("facts.unknown") : t("lock.ago", { age: duration(holder.heartbeatAgeSeconds * 1000) })}</dd>
              </dl>
              <p className={css.plain}>{t("lock.text")}</p>
            </>
          )}
          {act.error && <ErrorNote error={act.error} />}
          <div className={css.footer}>
            <Button variant="default" data-autofocus onClick={close}>{t("common.cancel")}</Button>
            {holder !== null && holder !== "nobody" && <Button color="red" loading={act.busy} onClick={() => void act.run(holder.token)}>{t("lock.break")}</Button>}
          </div>
        </div>
      </Modal>
    </>
  );
}
