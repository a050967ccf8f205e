import { Button, Textarea, TextInput } from "@mantine/core";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { RequestError } from "../client/page-error.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { AddOutcomes } from "./AddOutcomes.js";
import { AuthFields, authOf, NO_AUTH } from "./auth-fields.js";
import { parseNodeList } from "./parse-list.js";
import { useAddMany } from "./use-add.js";
import css from "./nodes.module.css";

const NO_ERRORS: ReadonlyMap<string, string> = new Map();

export function AddFromList({ onAdded }: { onAdded(ids: string[], allWell: boolean): void }) {
  const { t } = useTranslation();
  const [text, setText] = useState("");
  const [user, setUser] = useState("");
  const [jump, setJump] = useState("");
  const [auth, setAuth] = useState(NO_AUTH);
  const add = useAddMany();
  const lines = useMemo(() => parseNodeList(text, user.trim()), [text, user]);
  const good = lines.flatMap((line) => (line.input ? [line.input] : []));
  const bad = lines.filter((line) => line.input === null);
  const authReady = auth.kind === "agent" || (auth.kind === "key" ? auth.keyPath.trim() !== "" : auth.password !== "");
  const submit = () => {
    const hops = jump.split(",").map((hop) => hop.trim()).filter(Boolean);
    void add.run(good.map((input) => ({ ...input, auth: authOf(auth), jump: hops })), (ids) => onAdded(ids, ids.length === good.length));
  };
  return (
    <div className={css.stack}>
      <Textarea
        data-autofocus label={t("add.list")} description={t("add.listHint")} rows={8} placeholder={"ops@gpu-01\nops@gpu-02:2222\nops@[fd00::3]:22"}
        styles={{ input: { fontFamily: "var(--mantine-font-family-monospace)", fontSize: 12 } }} value={text} onChange={(event) => setText(event.currentTarget.value)}
      />
      <div className={css.form}>
        <div className={css.half}>
          <TextInput label={t("add.defaultUser")} value={user} onChange={(event) => setUser(event.currentTarget.value)} />
          <TextInput label={t("add.jump")} placeholder="ops@bastion:22" value={jump} onChange={(event) => setJump(event.currentTarget.value)} />
        </div>
        <AuthFields draft={auth} onChange={setAuth} errors={NO_ERRORS} />
      </div>
      {bad.slice(0, 5).map((line) => <ErrorNote key={line.line} compact error={RequestError.of("P105", { line: `${line.line}: ${line.text}` }).view} />)}
      {bad.length > 5 && <span className="dim">{t("add.moreBad", { count: bad.length - 5 })}</span>}
      <AddOutcomes outcomes={add.outcomes} />
      {add.error && <ErrorNote error={add.error} />}
      <div className={css.footer}>
        {add.busy && <Button variant="default" onClick={add.cancel}>{t("common.cancel")}</Button>}
        <Button disabled={good.length === 0 || bad.length > 0 || !authReady} loading={add.busy} onClick={submit}>{t("add.submitCount", { count: good.length })}</Button>
      </div>
    </div>
  );
}
