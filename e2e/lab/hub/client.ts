import { connect } from 'node:net';
import { LabError } from '../errors.js';
import { hubReply, type HubRequest, type HubStatus } from './protocol.js';

/**
 * Sends one request to the hub and returns the state after it.
 * @throws LabError LAB_HUB_FAILED when the hub does not answer within 3 s, or refuses.
 */
export async function askHub(controlSocket: string, request: HubRequest): Promise<HubStatus> {
  const next = 'Run `npm run lab -- down`, then `up` again; hub.log in the lab\'s folder says what happened.';
  const line = await new Promise<string>((resolve, reject) => {
    let text = '';
    const socket = connect(controlSocket, () => socket.write(`${JSON.stringify(request)}\n`));
    const fail = (why: string, cause?: unknown): void => {
      socket.destroy();
      reject(new LabError('LAB_HUB_FAILED', `the hub that joins the nodes ${why}`, next, { cause }));
    };
    socket.setEncoding('utf8').setTimeout(3000, () => fail('did not answer within 3 s'));
    socket.on('error', (error) => fail(`is not to be reached: ${error.message}`, error));
    socket.on('data', (piece: string) => {
      text += piece;
      if (!text.includes('\n')) return;
      socket.destroy();
      resolve(text.slice(0, text.indexOf('\n')));
    });
    socket.on('close', () => fail('closed the connection without an answer'));
  });
  const reply = hubReply.parse(JSON.parse(line));
  if (!reply.ok) throw new LabError('LAB_HUB_FAILED', `the hub refused the request: ${reply.error}`, next);
  return reply;
}
