import { ConsoleError, type FileDiagnosisView } from "../contract/index.js";
import { analyseStreams } from "./engine.js";
import type { OpenFile } from "./uploads.js";

/** Judges files of a machine that the console cannot reach. The work is given up between two pieces. @throws ConsoleError H104, H608 */
export async function diagnoseFilesView(files: readonly OpenFile[], signal: AbortSignal): Promise<FileDiagnosisView> {
  const began = performance.now();
  const analysis = await analyseStreams(files.map((file) => ({ name: file.name, data: cancellable(file.stream(), signal) })));
  return {
    verdict: analysis.verdict, findings: analysis.findings, cannotTell: analysis.cannotTell, inputs: analysis.inputs,
    files: files.map(({ name, sizeBytes }) => ({ name, sizeBytes })), lines: analysis.lines, droppedChars: analysis.droppedChars, durationMs: Math.round(performance.now() - began),
  };
}

async function* cancellable(chunks: AsyncIterable<Uint8Array>, signal: AbortSignal): AsyncIterable<Uint8Array> {
  for await (const chunk of chunks) {
    if (signal.aborted) throw ConsoleError.of("H104");
    yield chunk;
    // A file that is read faster than it is judged must not keep the console from everything else.
    await new Promise((done) => setImmediate(done));
  }
}
