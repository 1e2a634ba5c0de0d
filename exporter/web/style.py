"""How the pages look: one sheet that is part of each page, on paper, at a desk, on a phone and in the dark."""

STYLE = """
:root{color-scheme:light dark;--fg:#1b1f24;--muted:#59636e;--bg:#fff;--card:#f3f5f7;--line:#d5dae0;--bad:#b3261e;
--good:#176f31;--link:#0859c4}
@media (prefers-color-scheme:dark){:root{--fg:#e4e8ec;--muted:#9ba6b2;--bg:#11151a;--card:#1a2027;--line:#333d48;
--bad:#ff8f85;--good:#70d48c;--link:#6cb0ff}}
*{box-sizing:border-box}
body{font:15px/1.45 system-ui,sans-serif;color:var(--fg);background:var(--bg);margin:0 auto;max-width:80em;
padding:1em;overflow-wrap:break-word}
bdi{overflow-wrap:anywhere}
h1{font-size:1.5em;margin:0}
h2{font-size:1.15em;margin:1.6em 0 .4em}
h3{font-size:1em;margin:1.2em 0 .2em}
a{color:var(--link)}
p{margin:.4em 0}
small{display:block;color:var(--muted);font-size:.85em}
.muted{color:var(--muted)}
.bad{color:var(--bad);font-weight:600}
.good{color:var(--good);font-weight:600}
.sums,.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(11em,1fr));gap:.6em;margin:1em 0;padding:0}
.sums div,.facts div{background:var(--card);border:1px solid var(--line);border-radius:.5em;padding:.5em .8em}
dt{color:var(--muted);font-size:.85em}
dd{margin:0}
.sums dd{font-size:1.3em;font-weight:600;font-variant-numeric:tabular-nums}
.sums small{font-weight:400;font-size:.65em}
.wrong{border-left:.25em solid var(--bad);background:var(--card);padding:.4em .8em;margin:1em 0;list-style:none}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:.35em .9em .35em 0;border-bottom:1px solid var(--line);
font-weight:inherit}
thead th{color:var(--muted);font-size:.85em;white-space:nowrap}
tbody th{font-weight:600}
tbody th small{font-weight:400}
meter{width:4.5em;height:.6em;border:0;border-radius:.3em;background:var(--line);vertical-align:baseline}
meter::-webkit-meter-bar{height:.6em;border:0;border-radius:.3em;background:var(--line)}
meter::-webkit-meter-optimum-value{background:var(--link)}
meter::-moz-meter-bar{background:var(--link)}
td,tbody th{white-space:nowrap}
td.prose,small,.group th{white-space:normal}
.cards th small{min-width:13em}
.group th{padding-top:1.2em;font-size:1.05em}
[role=region]{overflow-x:auto}
.wide td.prose{min-width:14em}
footer{margin-top:2em;color:var(--muted);font-size:.85em}
@media (max-width:50em){
.cards thead{display:none}
.cards tr{display:grid;grid-template-columns:1fr 1fr;gap:.2em .8em;background:var(--card);border:1px solid var(--line);
border-radius:.5em;padding:.6em .8em;margin-bottom:.7em}
.cards th,.cards td{border:0;padding:0}
.cards th,.cards td{white-space:normal}
.cards th{grid-column:1/-1}
.cards .group{display:block;background:none;border:0;padding:.8em 0 0}
.cards td:empty{display:none}
.cards td::before{content:attr(data-label);display:block;color:var(--muted);font-size:.8em;font-weight:400}
}
"""

STYLE_HASH = "sha256-w6qNNbwLreMRlHO6sOQjbZODIVegLs6V5MHu8DgtF6E="
"""Of the sheet, by which Content-Security-Policy allows it and no other. Not made at the start: that loads OpenSSL."""
