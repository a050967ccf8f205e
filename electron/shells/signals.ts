/** A signal that Ctrl-C, SIGTERM or a closed terminal aborts; a second Ctrl-C ends the process at once. */
export function endSignal(): AbortSignal {
  const abort = new AbortController();
  const end = (): void => {
    if (abort.signal.aborted) process.exit(130);
    abort.abort(Object.assign(new Error("interrupted"), { name: "AbortError" }));
  };
  process.on("SIGINT", end);
  process.on("SIGTERM", end);
  process.on("SIGHUP", end);
  return abort.signal;
}
