import { Button, PasswordInput, SegmentedControl, TextInput } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { AuthMethod } from "../../electron/contract/index.js";
import { useConsole, useHost } from "../store/console-hooks.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { useAction } from "../shared/use-action.js";
import css from "./nodes.module.css";

export interface AuthDraft {
  kind: AuthMethod["kind"];
  keyPath: string;
  passphrase: string;
  password: string;
}
export const NO_AUTH: AuthDraft = { kind: "agent", keyPath: "", passphrase: "", password: "" };

/** What the host takes; an empty passphrase is none. */
export function authOf(draft: AuthDraft): AuthMethod {
  switch (draft.kind) {
    case "agent": return { kind: "agent" };
    case "key": return { kind: "key", keyPath: draft.keyPath.trim(), ...(draft.passphrase === "" ? {} : { passphrase: draft.passphrase }) };
    case "password": return { kind: "password", password: draft.password };
  }
}

export function AuthFields({ draft, onChange, errors }: { draft: AuthDraft; onChange(draft: AuthDraft): void; errors: ReadonlyMap<string, string> }) {
  const { t } = useTranslation();
  const { client } = useConsole();
  const browse = useAction(async () => {
    const path = (await client.chooseFile?.()) ?? null;
    if (path !== null) onChange({ ...draft, keyPath: path });
  });
  const keeps = useHost((s) => s.hello?.capabilities.keepsSecrets ?? false);
  const note = keeps ? t("add.secretsKept") : t("add.secretsSession");
  return (
    <>
      <div className={css.wide}>
        <div id="auth-kind" className={css.label}>{t("add.auth")}</div>
        <SegmentedControl
          aria-labelledby="auth-kind" fullWidth value={draft.kind} onChange={(kind) => onChange({ ...draft, kind: kind as AuthDraft["kind"] })}
          data={(["agent", "key", "password"] as const).map((value) => ({ value, label: t(`authKinds.${value}`) }))}
        />
      </div>
      {draft.kind === "key" && (
        <>
          <TextInput
            className={css.wide} label={t("add.keyPath")} description={t("add.keyPathHint")} placeholder="~/.ssh/id_ed25519" value={draft.keyPath} error={errors.get("auth.keyPath")}
            onChange={(event) => onChange({ ...draft, keyPath: event.currentTarget.value })}
            {...(client.chooseFile ? { rightSectionWidth: 84, rightSection: <Button size="compact-xs" variant="subtle" loading={browse.busy} onClick={() => void browse.run()}>{t("add.browse")}</Button> } : {})}
          />
          {browse.error && <ErrorNote error={browse.error} onClose={browse.clear} />}
          <PasswordInput
            className={css.wide} label={t("add.passphrase")} description={note} value={draft.passphrase}
            onChange={(event) => onChange({ ...draft, passphrase: event.currentTarget.value })}
          />
        </>
      )}
      {draft.kind === "password" && (
        <PasswordInput
          className={css.wide} label={t("add.password")} description={note} value={draft.password} error={errors.get("auth.password")}
          onChange={(event) => onChange({ ...draft, password: event.currentTarget.value })}
        />
      )}
    </>
  );
}
