// An OpenID provider for tests, which any user can log in to. Arguments: the seconds for which
// tokens are valid, and a host of the client. Prints its port, and exits when its input ends.
import http from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [modules, lifetime, ...hosts] = process.argv.slice(2);
const { resolve } = createRequire(`${modules}/`);
const { default: Provider } = await import(pathToFileURL(resolve('oidc-provider')));
const seconds = Number(lifetime);

const server = http.createServer((request, response) => answer(request, response));
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
await new Promise((resolve) => server.once('listening', resolve));

const provider = new Provider(`http://127.0.0.1:${server.address().port}`, {
  clients: [{
    client_id: 'shop',
    client_secret: 'hush-hush-hush-hush',
    grant_types: ['authorization_code', 'refresh_token'],
    redirect_uris: hosts.map((host) => `https://${host}/oauth2/callback`),
    post_logout_redirect_uris: hosts.map((host) => `https://${host}/`),
  }],
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  issueRefreshToken: () => true,
  pkce: { required: () => true },
  ttl: { AccessToken: seconds, Grant: 3600, IdToken: 3600, Interaction: 3600, RefreshToken: 3600, Session: 3600 },
});
const answer = provider.callback();

process.stdin.on('end', () => process.exit());
process.stdin.resume();
