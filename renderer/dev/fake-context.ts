/** What the scripted parts need from the scripted host. */
export interface FakeContext {
  now(): number;
  nodeName(nodeId: string): string;
  patch(stream: string, upsert: unknown[]): void;
  /** Calls `work` once a beat until it calls `stop`. */
  every(work: (stop: () => void) => void): void;
}
