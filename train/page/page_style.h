// The style of a report: light, dark, narrow and print.
#pragma once

namespace ripstop {

inline constexpr const char* kPageStyle = R"(
:root{color-scheme:light dark;--paper:#fff;--card:#f6f7f9;--edge:#dfe3e8;--ink:#1b2430;--dim:#5d6875;--bad:#c62828;
--mark:#fff2b3;--c0:#2563eb;--c1:#d9480f;--c2:#2b8a3e;--c3:#9333ea;--c4:#c2255c;--c5:#0b7285;--c6:#8f6400;--c7:#495057;
--p0:#7c8ba1;--p1:#d9480f;--p2:#9c4221;--p3:#f08c00;--p4:#fcc419;--p5:#ae3ec9;--p6:#e599f7;--p7:#20a97f;--p8:#b6bec8}
@media screen and (prefers-color-scheme:dark){:root{--paper:#12161c;--card:#1b212a;--edge:#313a46;--ink:#e4e9ef;
--dim:#98a4b1;--bad:#ff7b72;--mark:#574a12;--c0:#6ea8fe;--c1:#ff9f5a;--c2:#69db7c;--c3:#c79bff;--c4:#ff8fb1;--c5:#4fd1d9;
--c6:#e0b84c;--c7:#b8c0c8}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 24px 60px}
h1{font-size:28px;line-height:1.2;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:20px;margin:44px 0 10px;padding-bottom:6px;border-bottom:1px solid var(--edge)}
h3{font-size:15px;margin:0 0 2px}
p{margin:6px 0;max-width:80ch;overflow-wrap:anywhere}
nav{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:14px;margin:10px 0 18px}
a{color:var(--c0);text-decoration:none}
.dim,figcaption,.note{color:var(--dim);font-size:13.5px}
.bad{color:var(--bad);font-weight:600}
.story{background:var(--card);border:1px solid var(--edge);border-left:5px solid var(--run);border-radius:8px;
padding:8px 16px;margin:10px 0}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(165px,1fr));gap:10px;margin:14px 0}
.tiles div{background:var(--card);border:1px solid var(--edge);border-radius:8px;padding:9px 13px}
.tiles dt{color:var(--dim);font-size:13px}
.tiles dd{margin:1px 0 0;font-size:17px;font-weight:600;overflow-wrap:anywhere}
.scroll{overflow-x:auto;margin:10px 0}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:5px 16px 5px 0;border-bottom:1px solid var(--edge);
overflow-wrap:break-word;min-width:84px;max-width:420px}
td .dim{white-space:nowrap}
th{font-weight:600;overflow-wrap:normal}td:first-child{min-width:150px}tbody th{color:var(--dim);font-weight:400;min-width:150px}
.swatch{display:inline-block;width:11px;height:11px;border-radius:3px;background:var(--run);margin-right:6px}
.charts{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:14px}
figure{margin:0;background:var(--card);border:1px solid var(--edge);border-radius:8px;padding:10px 12px 6px;min-width:0;
break-inside:avoid}
figure.wide{grid-column:1/-1}
.small-only{display:none}
.legend{font-size:13px;display:flex;flex-wrap:wrap;gap:2px 14px;overflow-wrap:anywhere}
svg{display:block;width:100%;height:auto;margin-top:2px}
svg text{fill:var(--dim);font-size:12px}
.end{text-anchor:end}.mid{text-anchor:middle}svg text.bad{fill:var(--bad);font-size:13px}
svg path{fill:none;vector-effect:non-scaling-stroke}
.grid{stroke:var(--edge);stroke-width:1}
.line{stroke-width:2;stroke-linejoin:round}.dotted{stroke-width:1.5;stroke-dasharray:5 3}
.raw{stroke-width:1;opacity:.33}.dash{stroke-dasharray:7 3}
.restart{stroke-width:1;stroke-dasharray:2 4}.restart.mesh{stroke-width:2}.diverged{stroke:var(--bad);stroke-width:1.5}
.strips rect{fill:transparent}.strips text{display:none;fill:var(--ink)}
.strips g:hover rect{fill:var(--dim);fill-opacity:.16}.strips g:hover text{display:block}
.axes{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:14px;margin:8px 0}
.by-tokens,.by-hours{display:none}
section:has(#x-tokens:checked) .by-step,section:has(#x-hours:checked) .by-step{display:none}
section:has(#x-tokens:checked) .by-tokens,section:has(#x-hours:checked) .by-hours{display:grid}
.bar{display:flex;height:26px;border-radius:6px;overflow:hidden;margin:5px 0 12px;border:1px solid var(--edge)}
.bar span{min-width:0}
.example{border:1px solid var(--edge);border-radius:8px;padding:10px 14px;margin:12px 0;break-inside:avoid}
.columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,270px),1fr));gap:8px 20px}
.columns p{white-space:pre-wrap}
mark{background:var(--mark);color:inherit;border-radius:2px}
details{margin:8px 0}summary{cursor:pointer;color:var(--c0);font-size:14px}
pre{background:var(--card);border:1px solid var(--edge);border-radius:8px;padding:10px 14px;font-size:12.5px;
white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.4}
code{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.92em;overflow-wrap:anywhere}
@media(max-width:700px){main{padding:16px 12px 40px}.charts{grid-template-columns:minmax(0,1fr)}
.wide-only{display:none}.small-only{display:block}svg text{font-size:16px}h1{font-size:23px}
.tiles{grid-template-columns:repeat(2,minmax(0,1fr))}
#origin .facts th,#origin .facts td{display:block;padding-right:0;max-width:none}#origin .facts tbody th{border:0;padding-bottom:0}
#origin .facts td{overflow-wrap:anywhere;padding-top:0}#origin .facts,#origin .facts tbody,#origin .facts tr{display:block}}
@media print{body{font-size:11.5pt}main{max-width:none;padding:0}nav,.axes{display:none}figure,.story,.tiles div{background:none}
h2{break-after:avoid}.scroll{overflow:visible}tr{break-inside:avoid}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)";

}  // namespace ripstop
