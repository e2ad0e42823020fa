//! Valid, unusual and invalid certificates and keys. If Envoy rejects a pair, its status says why.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sesame_envoy::validate::{Validity, validate};
use sesame_kinds::decode::{self, DecodeLimits};
use sesame_kinds::status::ConditionType;
use sesame_kinds::world::World;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::Snapshot;
use sesame_resolver::{Options, resolve};
use sesame_tests::checks::Checks;
use sesame_tests::envoy::envoy_binary;
use sesame_tests::manifests::{edge, https_listener, yaml};
use sesame_tests::rendering::options;

/// Creates `NAME.crt` and `NAME.key` for each kind.
const MAKE: &str = r#"
key() { name=$1; shift; openssl genpkey "$@" -out "$name.key"; }
bare() { name=$1; shift; openssl req -x509 -new -key "$name.key" -subj /CN=a.example.com -days 30 -out "$name.crt" "$@"; }
self() { bare "$@" -addext subjectAltName=DNS:a.example.com; }
# issued NAME CA EXTENSIONS OPTION...: issues a certificate for the key NAME, with openssl options.
issued() {
  name=$1; by=$2; printf '%b' "$3" > "$name.ext"; shift 3
  openssl req -new -key "$name.key" -subj "/CN=$name" -out "$name.csr"
  openssl x509 -req -in "$name.csr" -CA "$by.crt" -CAkey "$by.key" -days 30 -extfile "$name.ext" -out "$name.crt" "$@"
}
# pair NAME CERTIFICATE KEY: copies the two files to NAME.crt and NAME.key.
pair() { cp "$2" "$1.crt"; cp "$3" "$1.key"; }
ec() { key "$1" -algorithm EC -pkeyopt "ec_paramgen_curve:$2" -pkeyopt ec_param_enc:named_curve; self "$1"; }
rsa() { key "$1" -algorithm RSA -pkeyopt "rsa_keygen_bits:$2"; self "$1"; }

rsa rsa-2048 2048; rsa rsa-3072 3072; rsa rsa-1024 1024; rsa other 2048
key rsa-e3 -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -pkeyopt rsa_keygen_pubexp:3; self rsa-e3
key rsa-pss -algorithm RSA-PSS -pkeyopt rsa_keygen_bits:2048; self rsa-pss
ec p-256 P-256; ec p-384 P-384; ec p-521 P-521; ec p-224 P-224; ec secp256k1 secp256k1
key ed25519 -algorithm ED25519; self ed25519
key ed448 -algorithm ED448; self ed448
key p-256-explicit -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -pkeyopt ec_param_enc:explicit; self p-256-explicit
openssl pkey -in p-256.key -ec_conv_form compressed -out p-256-compressed.key; self p-256-compressed
pair compressed-key-only p-256.crt p-256-compressed.key

openssl req -new -key p-256.key -subj /CN=a.example.com -out v1.csr; cp p-256.key v1.key
openssl x509 -req -in v1.csr -signkey v1.key -days 30 -out v1.crt
cp p-256.key critical.key; self critical -addext 1.2.3.4.5=critical,ASN1:UTF8String:x
cp p-256.key serial-0.key; self serial-0 -set_serial 0
cp p-256.key serial-negative.key; self serial-negative -set_serial -5
cp p-256.key serial-long.key; self serial-long -set_serial 0x00ffffffffffffffffffffffffffffffffffffffffffffffffffff
cp p-256.key broken-extension.key; bare broken-extension -addext 2.5.29.17=DER:30:03:82:80:00
cp p-256.key for-clients.key; self for-clients -addext extendedKeyUsage=clientAuth
cp p-256.key authority.key; self authority -addext keyUsage=critical,keyCertSign
cp rsa-2048.key md5.key; self md5 -md5
cp p-256.key nameless.key; openssl req -x509 -new -key p-256.key -subj / -days 30 -out nameless.crt
openssl x509 -req -in v1.csr -signkey v1.key -days -1 -out expired.crt; cp v1.key expired.key

openssl ec -in p-256.key -out sec1.key; cp p-256.crt sec1.crt
(openssl ecparam -name prime256v1; cat sec1.key) > sec1-parameters.key; cp p-256.crt sec1-parameters.crt
openssl rsa -in rsa-2048.key -traditional -out pkcs1.key; cp rsa-2048.crt pkcs1.crt
for curve in 256 384 521; do openssl ec -in p-$curve.key -no_public -out no-public-$curve.key; cp p-$curve.crt no-public-$curve.crt; done
openssl ecparam -genkey -noout -name prime256v1 | openssl ec -no_public -out no-public-other.key; cp p-256.crt no-public-other.crt
openssl pkey -in rsa-2048.key -aes256 -passout pass:x -out encrypted.key; cp rsa-2048.crt encrypted.crt
openssl rsa -in rsa-2048.key -traditional -aes128 -passout pass:x -out encrypted-pkcs1.key; cp rsa-2048.crt encrypted-pkcs1.crt

pair another-key rsa-2048.crt other.key
pair another-kind rsa-2048.crt p-256.key
openssl genpkey -algorithm ED25519 -out another-ed25519.key; cp ed25519.crt another-ed25519.crt
cat p-256.crt rsa-2048.crt > order.crt; cp rsa-2048.key order.key
cat rsa-2048.crt rsa-2048.crt > twice.crt; cp rsa-2048.key twice.key
cat other.key rsa-2048.key > two-keys.key; cp rsa-2048.crt two-keys.crt
cat rsa-2048.key rsa-2048.crt > one-file.crt; cp one-file.crt one-file.key
for file in crt key; do
  sed 's/$/\r/' rsa-2048.$file > crlf.$file
  (printf '\357\273\277'; cat rsa-2048.$file) > byte-order-mark.$file
done
openssl x509 -in rsa-2048.crt -text > text.crt; cp rsa-2048.key text.key
openssl x509 -in rsa-2048.crt -trustout -addtrust serverAuth > trusted.crt; cp rsa-2048.key trusted.key
sed 's/ CERTIFICATE/ X509 CERTIFICATE/' rsa-2048.crt > old-label.crt; cp rsa-2048.key old-label.key
tr -d '\n' < rsa-2048.crt > one-line.crt; cp rsa-2048.key one-line.key
head -c 600 rsa-2048.crt > cut-off.crt; cp rsa-2048.key cut-off.key
head -c 600 rsa-2048.key > cut-off-key.key; cp rsa-2048.crt cut-off-key.crt
(cat rsa-2048.crt; printf -- '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n') > broken-chain.crt; cp rsa-2048.key broken-chain.key
cp rsa-2048.crt broken-key.crt; printf -- '-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n' > broken-key.key
pair certificate-as-key rsa-2048.crt rsa-2048.crt
pair key-as-certificate rsa-2048.key rsa-2048.key
pair request v1.csr v1.key

cp p-256.key common-name.key; bare common-name
leaf='subjectAltName=DNS:a.example.com\nbasicConstraints=critical,CA:FALSE'
authority=basicConstraints=critical,CA:TRUE
cp p-384.key root.key; bare root
cp p-521.key between.key; issued between root "$authority"
cp rsa-1024.key short.key; issued short root "$authority"
cp p-256.key end.key; issued end between "$leaf"
cp rsa-2048.key chain.key; issued chain between "$leaf"; cat between.crt root.crt >> chain.crt
cp end.key root-first.key; cat root.crt between.crt end.crt > root-first.crt
cp end.key swapped.key; cat end.crt root.crt between.crt > swapped.crt
for hash in sha1 md5; do cp end.key $hash-signed.key; issued $hash-signed rsa-2048 "$leaf" -$hash; done
cp p-256.key below-short.key; issued below-short short "$leaf"; cat short.crt >> below-short.crt
for count in 300 1000; do
  cp end.key of-$count.key; cp end.crt of-$count.crt
  yes -- "$(cat between.crt)" | head -n $((count * $(wc -l < between.crt))) >> of-$count.crt
done
base64 -w 0 rsa-2048.crt > twice-encoded.crt; cp rsa-2048.key twice-encoded.key
openssl x509 -in rsa-2048.crt -outform DER -out binary.crt; cp rsa-2048.key binary.key
openssl pkcs12 -export -in rsa-2048.crt -inkey rsa-2048.key -passout pass: -out pkcs12.key; cp rsa-2048.crt pkcs12.crt
(printf '\377\376'; sed 's/./&\x00/g' rsa-2048.crt) > utf-16.crt; cp rsa-2048.key utf-16.key
"#;

#[derive(Clone, Copy, Debug)]
enum Expected {
    Served,
    /// Accepted with a warning that clients may reject it.
    Advised(&'static str),
    /// Rejected by resolution. Envoy would reject it too.
    Refused(&'static str),
    /// Rejected by Envoy. Resolution only warns.
    Judged(&'static str),
    /// Repaired by resolution. Envoy would reject the original.
    Mended(&'static str),
}

use Expected::{Advised, Judged, Mended, Refused, Served};

const KINDS: &[(&str, Expected)] = &[
    ("rsa-2048", Served),
    ("rsa-3072", Served),
    ("rsa-1024", Judged("2048-bit or larger")),
    ("rsa-e3", Served),
    ("rsa-pss", Judged("certificate chain")),
    ("p-256", Served),
    ("p-384", Served),
    ("p-521", Served),
    ("p-224", Judged("certificate chain")),
    ("secp256k1", Judged("certificate chain")),
    ("p-256-explicit", Judged("certificate chain")),
    ("p-256-compressed", Served),
    ("compressed-key-only", Served),
    ("ed25519", Served),
    ("ed448", Judged("certificate chain")),
    ("v1", Advised("no DNS name or IP address")),
    ("critical", Served),
    ("serial-0", Served),
    ("serial-negative", Served),
    ("serial-long", Served),
    ("broken-extension", Served),
    ("for-clients", Advised("is not valid for servers")),
    ("authority", Judged("certificate chain")),
    ("md5", Served),
    ("nameless", Judged("neither subject CN nor SAN")),
    // Resolution does not check expiry.
    ("expired", Advised("no DNS name or IP address")),
    ("sec1", Served),
    ("sec1-parameters", Served),
    ("pkcs1", Served),
    ("no-public-256", Served),
    ("no-public-384", Served),
    ("no-public-521", Served),
    ("no-public-other", Refused("tls.key does not match any")),
    ("encrypted", Refused("tls.key is encrypted with a password")),
    (
        "encrypted-pkcs1",
        Refused("tls.key is encrypted with a password"),
    ),
    ("another-key", Refused("tls.key does not match any")),
    ("another-kind", Refused("tls.key does not match any")),
    ("another-ed25519", Refused("tls.key does not match any")),
    ("order", Mended("its certificates are sent as 1, 0")),
    ("twice", Served),
    ("two-keys", Refused("tls.key does not match any")),
    ("one-file", Served),
    ("crlf", Served),
    ("byte-order-mark", Mended("")),
    ("text", Served),
    ("trusted", Served),
    ("old-label", Served),
    ("one-line", Refused("a PEM section has no END line")),
    ("cut-off", Refused("tls.crt is truncated")),
    ("cut-off-key", Refused("tls.key is truncated")),
    (
        "broken-chain",
        Refused("tls.crt certificate 1 is malformed"),
    ),
    ("broken-key", Refused("tls.key contains a malformed PKCS#8")),
    (
        "certificate-as-key",
        Refused("tls.key contains a certificate, not a PEM private key"),
    ),
    (
        "key-as-certificate",
        Refused("tls.crt contains a private key, not a PEM certificate"),
    ),
    (
        "request",
        Refused("contains a certificate request, not a PEM certificate"),
    ),
    ("common-name", Advised("ignore the common name")),
    ("chain", Served),
    ("root-first", Mended("its certificates are sent as 2, 1, 0")),
    ("swapped", Advised("its certificates are sent as 0, 2, 1")),
    (
        "sha1-signed",
        Advised("certificate 0 of Secret/default/cert is signed with SHA-1"),
    ),
    ("md5-signed", Advised("is signed with MD5")),
    (
        "below-short",
        Advised("certificate 1 of Secret/default/cert has an RSA key of 1024 bits"),
    ),
    ("of-300", Advised("has 301 certificates with")),
    ("of-1000", Refused("bytes, maximum 524288")),
    ("twice-encoded", Refused("it was encoded twice")),
    ("binary", Refused("contains binary data")),
    (
        "pkcs12",
        Refused("tls.key contains binary data, such as DER or PKCS#12, not a PEM private key"),
    ),
    ("utf-16", Refused("contains text in UTF-16")),
];

#[tokio::test]
async fn certificate_is_served_or_rejected_with_reason() {
    let envoy = envoy_binary();
    let directory = tempfile::tempdir().expect("a directory");
    let made = Command::new("sh")
        .args(["-euc", MAKE])
        .current_dir(directory.path())
        .output()
        .expect("this test requires sh and openssl");
    let stderr = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "openssl: {stderr}");
    let mut checks = Checks::default();
    for (kind, expected) in KINDS {
        let read = |end: &str| {
            let path = directory.path().join(format!("{kind}.{end}"));
            std::fs::read(path).expect("openssl has created the file")
        };
        let (chain, key) = (read("crt"), read("key"));
        let ours = resolved(&chain, &key);
        let snapshot = resolved(&chain_of(directory.path()), &key_of(directory.path()))
            .expect("a good pair")
            .snapshot;
        let raw = KeyPair {
            name: "Secret/default/cert".to_owned(),
            certificate_chain: chain,
            private_key: key,
            ..KeyPair::default()
        };
        let raw_verdict = envoy_says(&envoy, directory.path(), &snapshot, raw).await;
        let resolved_verdict = match &ours {
            Ok(ServedPair { snapshot, pair, .. }) => {
                Some(envoy_says(&envoy, directory.path(), snapshot, pair.clone()).await)
            }
            Err(_) => None,
        };
        let ours = ours.map(|resolved| resolved.advice);
        let advised = |why: &str| {
            ours.as_ref().is_ok_and(|advice| match why {
                "" => advice.is_empty(),
                why => advice.contains(why),
            })
        };
        let taken = resolved_verdict == Some(Ok(()));
        let (raw_good, as_said) = match expected {
            Served => (true, taken && advised("")),
            Advised(why) => (true, taken && advised(why)),
            Mended(why) => (false, taken && advised(why)),
            Refused(why) => (
                // Envoy would accept a chain of a thousand certificates.
                *kind == "of-1000",
                ours.as_ref().is_err_and(|message| message.contains(why)),
            ),
            Judged(why) => (
                false,
                matches!(&resolved_verdict, Some(Err(stderr)) if stderr.contains(why))
                    && !advised(""),
            ),
        };
        let description = format!(
            "{kind}: {ours:?}, Envoy: resolved pair {resolved_verdict:?}, original {raw_verdict:?}"
        );
        checks.same(&description, raw_verdict.is_ok(), raw_good);
        checks.same(&description, as_said, true);
    }
    checks.finish();
}

fn chain_of(directory: &Path) -> Vec<u8> {
    std::fs::read(directory.join("rsa-2048.crt")).expect("a certificate")
}

fn key_of(directory: &Path) -> Vec<u8> {
    std::fs::read(directory.join("rsa-2048.key")).expect("a key")
}

struct ServedPair {
    snapshot: Snapshot,
    pair: KeyPair,
    /// Suffix of the listener's `ResolvedRefs` message.
    advice: String,
}

/// Returns the `ResolvedRefs` message as an error if the pair is not served.
fn resolved(chain: &[u8], key: &[u8]) -> Result<ServedPair, String> {
    let mut objects = edge(&[https_listener("https", 443, "", "cert")]);
    objects.push(serde_json::json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "cert", "namespace": "default"},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": STANDARD.encode(chain), "tls.key": STANDARD.encode(key)},
    }));
    let mut world = World::default();
    let text = yaml(&objects);
    for document in decode::split(&text) {
        for decoded in decode::decode(document.text, &DecodeLimits::default()) {
            world.insert(decoded.expect("valid objects").object);
        }
    }
    let mut resolution = resolve(&world, &Options::default());
    let gateway = resolution.gateways.pop().expect("a Gateway");
    let (_, status) = resolution.statuses.gateways.pop_first().expect("a status");
    let conditions = status.listeners.into_iter().flat_map(|l| l.conditions);
    let mut refs = conditions.filter(|c| c.type_ == ConditionType::ResolvedRefs);
    let message = refs.next().expect("a condition").message;
    let [pair] = gateway.keys.as_slice() else {
        return Err(message);
    };
    let advice = message.strip_prefix("all references are resolved");
    Ok(ServedPair {
        pair: pair.clone(),
        snapshot: gateway.snapshot,
        advice: advice.expect("all references are resolved").to_owned(),
    })
}

async fn envoy_says(
    envoy: &Path,
    directory: &Path,
    snapshot: &Snapshot,
    pair: KeyPair,
) -> Result<(), String> {
    let options = options(vec![Ipv4Addr::LOCALHOST.into()]);
    let rendered = sesame_render::render(snapshot, &[pair], &options);
    let bootstrap = sesame_render::static_bootstrap(&rendered).expect("the rendered bootstrap");
    match validate(envoy, directory, &bootstrap)
        .await
        .expect("Envoy runs")
    {
        Validity::Valid => Ok(()),
        Validity::Invalid { envoy_words } => Err(envoy_words),
    }
}
