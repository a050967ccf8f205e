import { Button, Modal } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { useUi } from "../app/ui.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { oneLine } from "../shared/printable.js";
import { useAction } from "../shared/use-action.js";
import { useConsole } from "../store/console-hooks.js";
import css from "./nodes.module.css";

/** Asks before anything is taken off a node or out of the list, naming the nodes; Cancel has the focus. */
export function RemoveNodes({ kind, ids, onClose }: { kind: "takeDown" | "forget" | null; ids: readonly string[]; onClose(): void }) {
  const { t } = useTranslation();
  const { client, nodes } = useConsole();
  const set = useUi((s) => s.set);
  const action = useAction(async (signal, what: "takeDown" | "forget") => {
    if (what === "takeDown") {
      await client.request("nodes.takeDown", { nodeIds: [...ids] }, { signal });
      set({ work: true });
    } else {
      await client.request("nodes.forget", { nodeIds: [...ids] }, { signal });
      set({ selection: new Set(), nodeDetail: null });
    }
    onClose();
  });
  const close = () => {
    action.cancel();
    action.clear();
    onClose();
  };
  const names = ids.map((id) => oneLine(nodes.api.getState().items.get(id)?.name ?? id, 60));
  return (
    <Modal opened={kind !== null} onClose={close} title={kind && t(`nodes.${kind}Title`, { count: ids.length })} closeButtonProps={{ "aria-label": t("common.close") }}>
      {kind && (
        <div className={css.stack}>
          <p className={css.plain}>{t(`nodes.${kind}Text`)}</p>
          <p className={css.names}>{names.slice(0, 12).join(", ")}{names.length > 12 && ` … +${names.length - 12}`}</p>
          {action.error && <ErrorNote error={action.error} />}
          <div className={css.footer}>
            <Button variant="default" data-autofocus onClick={close}>{t("common.cancel")}</Button>
            <Button color="red" loading={action.busy} onClick={() => void action.run(kind)}>{t(`nodes.${kind}`)}</Button>
          </div>
        </div>
      )}
    </Modal>
  );
}
