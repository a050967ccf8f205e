import { Button, Popover } from "@mantine/core";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import type { NodeView } from "../../electron/contract/index.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { useAction } from "../shared/use-action.js";
import { useConsole } from "../store/console-hooks.js";
import { AuthFields, authOf, NO_AUTH } from "./auth-fields.js";
import css from "./nodes.module.css";

const NO_ERRORS: ReadonlyMap<string, string> = new Map();

/** Other credentials for a node; the way out of "refuses user". */
export function ChangeAuth({ node }: { node: NodeView }) {
  const { t } = useTranslation();
  const { client, nodes } = useConsole();
  const [opened, setOpened] = useState(false);
  const [draft, setDraft] = useState({ ...NO_AUTH, kind: node.authKind, keyPath: node.keyPath ?? "" });
  const save = useAction(async (signal) => {
    nodes.upsert(await client.request("nodes.setAuth", { nodeId: node.id, auth: authOf(draft) }, { signal }));
    setDraft({ ...draft, passphrase: "", password: "" });
    setOpened(false);
  });
  const ready = draft.kind === "agent" || (draft.kind === "key" ? draft.keyPath.trim() !== "" : draft.password !== "");
  return (
    <Popover opened={opened} onChange={setOpened} position="bottom-end" trapFocus width={340} shadow="md">
      <Popover.Target><Button size="compact-xs" variant="subtle" onClick={() => setOpened(!opened)}>{t("detail.changeAuth")}</Button></Popover.Target>
      <Popover.Dropdown>
        <form className={css.stack} onSubmit={(event) => { event.preventDefault(); void save.run(); }}>
          <AuthFields draft={draft} onChange={setDraft} errors={NO_ERRORS} />
          {save.error && <ErrorNote error={save.error} />}
          <div className={css.footer}>
            <Button variant="default" onClick={() => setOpened(false)}>{t("common.cancel")}</Button>
            <Button type="submit" disabled={!ready} loading={save.busy}>{t("common.save")}</Button>
          </div>
        </form>
      </Popover.Dropdown>
    </Popover>
  );
}
